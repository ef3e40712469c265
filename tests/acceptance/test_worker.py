"""Whole workers on ordinary days: every outcome, every way to end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from awa_django import enqueue_many
from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


def test_drain_runs_every_outcome_to_its_end(database: Database, start_worker: StartWorker) -> None:
    enqueue_many([handlers.record.item(number=number) for number in range(100)])
    enqueue_many([handlers.record_async.item(number=number) for number in range(100)])
    fails_once = handlers.fail_once.enqueue(number=1)
    always_fails = handlers.always_fail.enqueue()
    snoozed = handlers.snooze_once.enqueue()
    asks_again = handlers.retry_after.enqueue()
    cancels = handlers.cancel_itself.enqueue()
    terminal = handlers.fail_for_good.enqueue()
    overdue = handlers.overdue_async.enqueue()
    tomorrow = handlers.record.using(delay=86_400).enqueue(number=-1)

    worker = start_worker("--processes", "2")
    states = {"completed": 202, "failed": 4, "cancelled": 1, "scheduled": 1}
    wait_until(lambda: database.states() == states, message=lambda: str(database.states()))
    assert worker.stop() == 0

    assert database.states() == states
    assert database.effects("record") == list(range(100))
    assert database.effects("record_async") == list(range(100))
    assert database.effects("fail_once") == [1]
    assert database.job(fails_once.id)["attempt"] == 2
    assert [entry["outcome"] for entry in database.job(fails_once.id)["errors"]] == ["retried"]

    failed = database.job(always_fails.id)
    assert (failed["state"], failed["attempt"], len(failed["errors"])) == ("failed", 2, 2)
    assert failed["errors"][1]["error"] == "it never works"
    assert failed["errors"][1]["class"] == "ValueError"
    assert "in always_fail" in failed["errors"][1]["traceback"]
    assert [entry["attempt"] for entry in failed["errors"]] == [1, 2]
    # A job that was held for too long is released and claimed again: the lease grows, the attempt does not.
    first, second = (entry["run_lease"] for entry in failed["errors"])
    assert 1 <= first < second == failed["run_lease"]

    # Twice claimed, one attempt: a snooze gives it back. What it reported was there the second time.
    assert database.effects("snooze_once") == [1, 1]
    assert database.job(snoozed.id)["attempt"] == 1
    assert database.job(snoozed.id)["run_lease"] >= 2
    assert database.effects("retry_after") == [0, 0]
    assert database.job(asks_again.id)["state"] == "failed"
    assert database.job(asks_again.id)["errors"][0]["error"] == "the other side is busy"
    assert database.job(cancels.id)["errors"][0]["error"] == "nothing to do"
    assert (database.job(terminal.id)["state"], database.job(terminal.id)["attempt"]) == ("failed", 1)
    assert database.job(overdue.id)["errors"][0]["outcome"] == "timed_out"
    assert database.job(tomorrow.id)["state"] == "scheduled"


def test_drain_ends_when_nothing_is_due(database: Database, start_worker: StartWorker) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    handlers.record_async.enqueue(number=50)
    handlers.record.using(delay=3600).enqueue(number=99)
    worker = start_worker("--drain", env={"PYTHONWARNINGS": "error"})
    assert worker.wait() == 0
    assert "Warning" not in worker.text()  # no connection is left to the interpreter's end
    assert database.states() == {"completed": 51, "scheduled": 1}
    assert database.value("SELECT count(*) FROM awa.runtime_instances") == 0
    assert database.value("SELECT count(*) FROM awa.leaders WHERE holder IS NOT NULL") == 0


def test_drain_promotes_what_is_due(database: Database, start_worker: StartWorker) -> None:
    handlers.record.using(delay=3600).enqueue_many([{"number": number} for number in range(50)])
    database.connection.execute("UPDATE awa.scheduled_jobs SET run_at = now() - interval '1 second'")
    assert start_worker("--drain").wait() == 0
    assert database.states() == {"completed": 50}


def test_max_jobs_bounds_what_is_started(database: Database, start_worker: StartWorker) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(100)])
    assert start_worker("--max-jobs", "31", "--processes", "2").wait() == 0
    assert database.states() == {"completed": 31, "available": 69}
    assert database.value("SELECT max(attempt) FROM awa.jobs_hot WHERE state = 'available'") == 0


def test_max_time_ends_an_idle_worker(database: Database, start_worker: StartWorker) -> None:
    assert start_worker("--max-time", "0.5").wait() == 0


def test_children_are_replaced_after_their_share(database: Database, start_worker: StartWorker) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(60)])
    assert start_worker("--drain", "--max-jobs-per-child", "20").wait() == 0
    assert database.effects("record") == list(range(60))
    assert database.value("SELECT count(DISTINCT pid) FROM effects") >= 3


def test_a_child_that_has_grown_ends_its_jobs_and_is_replaced(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    handlers.until.enqueue(path=str(tmp_path / "end"))
    worker = start_worker("--concurrency", "1", "--max-memory-per-child", "1")  # as every Python has
    grown = re.compile(r"worker process (\d+) has \d+ megabytes")
    wait_until(lambda: grown.search(worker.text()), message=worker.text)
    handlers.record.enqueue(number=1)
    (tmp_path / "end").touch()
    wait_until(lambda: database.states() == {"completed": 2}, message=worker.text)
    assert worker.stop() == 0
    pids: dict[str, int] = dict(database.rows("SELECT name, pid FROM effects"))
    assert pids["ended"] == int(grown.findall(worker.text())[0]) != pids["record"]
    assert "died" not in worker.text()


def test_queues_are_served_within_their_limits(database: Database, start_worker: StartWorker) -> None:
    handlers.sleep.using(queue="narrow").enqueue_many([{"seconds": 0.2, "number": n} for n in range(6)])
    handlers.record.using(queue="other: with, commas".replace(",", "")).enqueue(number=1)
    handlers.record.using(queue="not served").enqueue(number=2)
    assert start_worker("--drain", "--queues", "narrow:2,other: with commas:4").wait() == 0
    assert database.states() == {"completed": 7, "available": 1}
    overlapping = database.value(
        """
        SELECT max(running) FROM (
            SELECT sum(CASE name WHEN 'started' THEN 1 ELSE -1 END) OVER (ORDER BY at) AS running
            FROM effects WHERE name IN ('started', 'ended')
        ) AS timeline
        """
    )
    assert overlapping == 2


def test_paused_queue_waits_for_resume(database: Database, start_worker: StartWorker) -> None:
    from awa_django import operations

    operations.pause_queue("default", by="tests")
    handlers.record.enqueue(number=1)
    handlers.record.using(queue="open").enqueue(number=2)
    worker = start_worker("--queues", "default,open")
    wait_until(lambda: database.effects("record") == [2], message=worker.text)
    wait_until(lambda: database.states() == {"completed": 1, "available": 1}, message=worker.text)
    operations.resume_queue("default")
    wait_until(lambda: database.effects("record") == [1, 2], message=worker.text)
    assert worker.stop() == 0


def test_job_of_plain_sql_runs(database: Database, start_worker: StartWorker) -> None:
    worker = start_worker()
    worker.wait_ready(database.connection)
    database.connection.execute(
        "INSERT INTO awa.jobs (kind, args) VALUES (%s, '{\"number\": 5}')", [handlers.record.handler.kind]
    )
    wait_until(lambda: database.effects("record") == [5], message=worker.text)
    assert worker.stop() == 0


@pytest.mark.fault("F54", injected="jobs of a kind that no worker has")
def test_unknown_kind_is_put_back_uncharged(database: Database, start_worker: StartWorker) -> None:
    database.connection.execute(
        "INSERT INTO awa.jobs (kind) SELECT 'nobody.knows' FROM generate_series(1, 4)"
    )
    handlers.record.enqueue(number=1)
    assert start_worker("--drain").wait() == 0
    assert database.effects("record") == [1]
    jobs = database.rows(
        "SELECT state::text, attempt, cardinality(errors), metadata -> 'awa:unknown_kind' -> 'count' "
        "FROM awa.jobs WHERE kind = 'nobody.knows'"
    )
    # After five seconds they are due again: on a slow machine some are, and have been put back once more.
    assert len(jobs) == 4
    assert all(job[:3] in (("scheduled", 0, 0), ("available", 0, 0)) and job[3] >= 1 for job in jobs)


@pytest.mark.fault("F51", injected="10 results and 3 error texts that cannot be stored")
@pytest.mark.fault("U35", injected="NUL and surrogates in results and error texts")
def test_results_that_cannot_be_stored_never_leave_a_job_running(
    database: Database, start_worker: StartWorker
) -> None:
    names = ("plain", "set", "bytes", "nan", "huge", "nul", "surrogate", "recursive", "object")
    given = {name: handlers.give.enqueue(what=name).id for name in names}
    raised = [handlers.raise_text.enqueue(what=name).id for name in ("nul", "surrogate", "long")]
    unbegun = handlers.give.using(max_attempts=1).enqueue(what="generator").id  # is no result: nothing ran
    assert start_worker("--drain").wait() == 0
    assert {database.job(job_id)["state"] for job_id in given.values()} == {"completed"}
    assert database.job(unbegun)["state"] == "failed"
    assert database.job(given["plain"])["result"] == {"answer": 42}
    assert database.job(given["nan"])["result"] is None
    assert {database.job(job_id)["state"] for job_id in raised} == {"failed"}
    assert len(database.job(raised[2])["errors"][0]["error"]) <= 2_000


@pytest.mark.fault(
    "F12", injected="SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError; def and async"
)
def test_base_exceptions_end_the_job_and_not_the_worker(
    database: Database, start_worker: StartWorker
) -> None:
    for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError"):
        handlers.raise_base.enqueue(name=name)
        handlers.raise_base_async.enqueue(name=name)
    handlers.record.enqueue_many([{"number": number} for number in range(20)])
    assert start_worker("--drain").wait() == 0
    assert database.states() == {"failed": 8, "completed": 20}
    assert database.value("SELECT count(DISTINCT pid) FROM effects") == 1


def test_atomic_handler_commits_with_its_completion(database: Database, start_worker: StartWorker) -> None:
    handlers.atomic_effect.enqueue(number=1)
    handlers.atomic_effect.enqueue(number=2, die=True)
    handlers.atomic_failure.enqueue()
    worker = start_worker()
    wait_until(lambda: database.states() == {"completed": 2, "failed": 1}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("atomic") == [1, 2]
    assert database.effects("atomic failure") == []


@pytest.mark.fault("F81", injected="three running jobs cancelled, of def and of async def, on a real worker")
def test_cancelled_running_jobs_are_told_within_a_second(
    database: Database, start_worker: StartWorker
) -> None:
    from awa_django import operations

    worker = start_worker()
    count = 0

    def cancel_three(handler: Any) -> float:
        """Seconds from the cancel until the soonest of them knew: a busy machine takes its time with one."""
        nonlocal count
        ids = [handler.enqueue().id for _ in range(3)]
        count += 3
        wait_until(lambda: len(database.effects("started")) == count, message=worker.text)
        operations.cancel(ids, by="ann")
        wait_until(lambda: len(database.effects("saw the cancel")) == count, message=worker.text)
        soonest = database.value(
            "SELECT min(effect.at - job.finalized_at) FROM awa.jobs AS job, effects AS effect "
            "WHERE job.id = %s AND effect.name = 'saw the cancel' AND effect.at > job.finalized_at",
            ids[0],
        )
        return float(soonest.total_seconds())

    for handler in (handlers.until_cancelled, handlers.until_cancelled_async):
        # Again where the machine stood still just then.
        assert any(cancel_three(handler) < 1.0 for _ in range(5))
    assert worker.stop() == 0
    assert f"{count} stale" in worker.text()  # how they ended afterwards changes nothing
    assert database.states() == {"cancelled": count}
    assert database.value("SELECT max(cardinality(errors)) FROM awa.jobs") == 1


@pytest.mark.fault("F76", injected="a worker of another release on this schema")
@pytest.mark.fault("U57", injected="a schema newer than the code")
def test_worker_refuses_a_schema_it_does_not_know(database: Database, start_worker: StartWorker) -> None:
    database.connection.execute(
        "INSERT INTO awa.schema_version (version, name) VALUES (999, 'from the future')"
    )
    try:
        worker = start_worker()
        assert worker.wait() == 1
        assert "upgrade awa-django here" in worker.text()
    finally:
        database.connection.execute("DELETE FROM awa.schema_version WHERE version = 999")


def test_worker_says_which_option_is_wrong(database: Database, start_worker: StartWorker) -> None:
    worker = start_worker("--queues", "mail:many")
    assert worker.wait() == 1
    assert "--queues mail: the concurrency must be a number, not 'many'" in worker.text()


@pytest.mark.fault("U09", injected="an ImportError in a module of jobs, a job waiting")
def test_import_error_stops_the_start(database: Database, start_worker: StartWorker) -> None:
    handlers.record.enqueue(number=1)
    worker = start_worker(awa={"IMPORTS": ["tests.no_such_module"]})
    assert worker.wait() == 1
    assert "tests.no_such_module" in worker.text()
    assert database.states() == {"available": 1}


@pytest.mark.fault("U61", injected="an edited file while a job of 60 s runs under --reload")
def test_reload_gives_back_what_runs_and_starts_anew(
    database: Database, start_worker: StartWorker, worker_env: dict[str, str], tmp_path: Path
) -> None:
    source = tmp_path / "edited_jobs.py"
    source.write_text(EDITED.format(seconds=60, version=1))
    worker_env["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    worker = start_worker("--reload", awa={"IMPORTS": ["tests.handlers", "edited_jobs"]})
    worker.wait_ready(database.connection)
    database.connection.execute("INSERT INTO awa.jobs (kind) VALUES ('edited_jobs.edited')")
    wait_until(lambda: database.effects("edited") == [1], message=worker.text)
    source.write_text("def half(:")
    wait_until(lambda: "the changed code does not start" in worker.text(), message=worker.text)
    edited = tmp_path / "edited"
    edited.write_text(EDITED.format(seconds=0, version=2))
    edited.replace(source)  # at once, as an editor does it
    wait_until(lambda: database.states() == {"completed": 1}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("edited") == [1, 2]
    assert database.rows("SELECT attempt, cardinality(errors) FROM awa.jobs_hot") == [(1, 0)]
    assert database.value("SELECT run_lease FROM awa.jobs_hot") >= 2


EDITED = """
import time

from awa_django import job
from tests.handlers import effect


@job()
def edited() -> None:
    effect("edited", {version})
    time.sleep({seconds})
"""


def test_health_is_served_while_the_worker_works(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    worker = start_worker("--shutdown-timeout", "100", awa={"HEALTH": f"127.0.0.1:{free_port}"})

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{free_port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()
        except OSError:
            return 0, "null"

    def ask(path: str) -> tuple[int, dict[str, Any]]:
        code, body = get(path)
        return code, json.loads(body) or {}

    wait_until(lambda: ask("/readyz")[0] == 200, message=lambda: str(ask("/readyz")))
    code, told = ask("/healthz")
    assert (code, told["children_ready"], told["draining"]) == (200, 1, False)
    loops = {name.split(" of ")[0] for name in told["loops"]}
    assert loops >= {"claimer", "completer", "leader", "promoter", "rescuer", "heartbeater", "listener"}
    assert all(loop["ready"] for loop in told["loops"].values())
    handlers.until.enqueue(path=str(go_on))
    wait_until(lambda: database.effects("started"), message=worker.text)
    counted = {"awa_worker_ready 1", "awa_worker_held 1"}
    wait_until(lambda: counted <= set(get("/metrics")[1].splitlines()), message=lambda: get("/metrics")[1])
    assert re.search(r"^awa_worker_claimed_total [1-9]", get("/metrics")[1], re.MULTILINE)
    worker.signal(signal.SIGTERM)

    def is_draining() -> bool:
        code, told = ask("/readyz")
        return code == 503 and bool(told.get("draining"))

    wait_until(is_draining, message=worker.text)
    go_on.touch()
    assert worker.wait() == 0
