"""Values at the edges: attempts, backoffs, instants, names, payloads, rows that cannot be decoded."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from django.test import Client

from awa_django import InvalidJob
from awa_django.worker.database import Session
from awa_django.worker.rescuer import Rescuer
from tests import handlers, value_jobs
from tests.factories import insert_job, reload_job
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database, StartWorker

IMPORTS = ["tests.handlers", "tests.value_jobs"]
FAST = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5, "IMPORTS": IMPORTS}
EXITS = {
    "an exception": handlers.always_fail.enqueue,
    "RetryAfter": handlers.retry_after.enqueue,
    "the deadline, async": handlers.overdue_async.enqueue,
}


@pytest.mark.acceptance
@pytest.mark.fault(
    "F46", injected="at the last attempt: exception, RetryAfter, deadline, dead child, silent worker"
)
def test_every_exit_at_the_last_attempt_fails_the_job(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    ids = {name: enqueue().id for name, enqueue in EXITS.items()}
    ids["a silent worker"] = insert_job("running", max_attempts=3, attempt=3, worker="gone")
    database.connection.execute(
        "UPDATE awa.jobs_hot SET attempt = max_attempts - 1 WHERE state = 'available'; "
        "UPDATE awa.jobs_hot SET heartbeat_at = now() - interval '1 hour' WHERE state = 'running'"
    )
    worker = start_worker(awa=FAST)
    wait_until(lambda: database.states() == {"failed": 4}, message=worker.text)
    ids["a dead child"] = handlers.kill_own_process.using(max_attempts=1).enqueue().id
    wait_until(lambda: database.states() == {"failed": 5}, message=worker.text)
    ids["the deadline, stubborn"] = handlers.overdue_stubborn.enqueue(seconds=60).id
    wait_until(lambda: database.states() == {"failed": 6}, message=worker.text)
    outcomes = {}
    for name, job_id in ids.items():
        job = database.job(job_id)
        assert job["attempt"] == job["max_attempts"], name
        outcomes[name] = job["errors"][-1]["outcome"]
        assert len(job["errors"]) == 1
    worker.stop()
    observe("all failed with one entry: " + ", ".join(f"{name} ({how})" for name, how in outcomes.items()))


@pytest.mark.fault("F47", injected="rescue of a run at each of the attempts 1 to 999, with every policy")
def test_backoff_of_every_attempt_can_be_stored(database: Database, observe: Observe) -> None:
    policies: list[Any] = [
        None,
        {"policy": "exponential", "base": 86400, "factor": 1e6, "cap": 86400 * 300},
        {"policy": "linear", "step": 86400 * 300},
        {"policy": "fixed", "wait": 86400 * 365 * 90},
    ]
    database.connection.execute(
        "INSERT INTO awa.jobs_hot "
        "(kind, state, attempt, max_attempts, run_lease, attempted_at, worker, metadata) "
        "SELECT 'tests.lost', 'running', n, 1000, n, now(), 'gone', policy "
        "FROM generate_series(1, 999) AS n, unnest(%s::jsonb[]) AS policy",
        [[json.dumps({"awa:retry": policy} if policy else {}) for policy in policies]],
    )
    session = Session("awa-test-rescue")
    try:
        second = timedelta(seconds=1)
        Rescuer(session, AtWill(session), interval=second, stale_after=second, worker="w").tick()
    finally:
        session.close()
    count = 999 * len(policies)
    assert database.states() == {"retryable": count}
    [(shortest, longest, odd)] = database.rows(
        "SELECT min(run_at - now()), max(run_at - now()), count(*) FILTER (WHERE cardinality(errors) <> 1) "
        "FROM awa.scheduled_jobs"
    )
    assert longest <= timedelta(days=366)
    assert odd == 0
    observe(f"{count} waits between {shortest.total_seconds():.0f} s and {longest.days} days; none overflows")


MADRID = timezone(timedelta(hours=2))


@pytest.mark.fault(
    "F49", injected="run_at: past, now, far, naive, another zone, beyond the years of the tables"
)
def test_instants_by_python_are_normal_or_refused(database: Database, observe: Observe) -> None:
    past = handlers.record.using(run_at=datetime(1999, 1, 1, tzinfo=UTC)).enqueue(number=1)
    far = handlers.record.using(run_at=datetime(9999, 11, 30, tzinfo=UTC)).enqueue(number=1)
    zoned = handlers.record.using(run_at=datetime(2999, 1, 1, 12, tzinfo=MADRID)).enqueue(number=1)
    assert reload_job(past.id).state == "available"
    assert reload_job(far.id).state == "scheduled"
    assert database.job(zoned.id)["run_at"] == datetime(2999, 1, 1, 10, tzinfo=UTC)
    refused = [
        datetime(2999, 1, 1),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        "now",
    ]
    for run_at in refused:
        with pytest.raises(InvalidJob, match="run_at"):
            handlers.record.using(run_at=run_at).enqueue(number=1)  # type: ignore[arg-type]
    assert database.value("SELECT count(*) FROM awa.jobs") == 3
    observe(f"3 normalised to UTC, {len(refused)} refused by name")


@pytest.mark.fault(
    "F49", injected="by SQL: run_at and other instants that are infinite, of the year 20000, of 44 BC"
)
def test_instants_by_sql_are_in_range_or_refused(database: Database, observe: Observe) -> None:
    count = 0
    for column in ("run_at", "created_at", "attempted_at"):
        for value in ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC"):
            for table in ("awa.jobs", "awa.jobs_hot", "awa.scheduled_jobs"):
                with pytest.raises(psycopg.errors.CheckViolation, match="jobs_timestamps_range"):
                    database.connection.execute(
                        f"INSERT INTO {table} (kind, {column}) VALUES ('k', '{value}')".encode()
                    )
                count += 1
    assert database.states() == {}
    observe(f"{count} refused by a CHECK that names itself")


WRONG = {
    "priority": ({"priority": 0}, {"priority": 5}, {"priority": None}),
    "max_attempts": ({"max_attempts": 0}, {"max_attempts": 1001}),
    "tags": ({"tags": [f"t{number}" for number in range(21)]}, {"tags": [None]}),
    "queue": ({"queue": ""}, {"queue": "q" * 201}, {"queue": "a\x00b"}),
}
RAW = (
    ("priority", "-99"),
    ("priority", "103"),
    ("priority", "NULL"),
    ("max_attempts", "0"),
    ("max_attempts", "1001"),
    ("tags", "array_fill('t'::text, ARRAY[21])"),
    ("queue", "''"),
    ("queue", "repeat('q', 201)"),
    ("queue", "NULL"),
    ("attempt", "1002"),
    ("attempt", "-1"),
    ("args", "'[]'"),
    ("args", "'1'"),
    ("args", "NULL"),
    ("args", "'null'"),
    ("metadata", "'[]'"),
    ("unique_key", "'\\x00'"),
)


@pytest.mark.fault(
    "F50", injected="priority, max_attempts, tags, queue and kind out of range, by Python and by SQL"
)
def test_values_out_of_range_are_refused_by_name(database: Database, observe: Observe) -> None:
    count = 0
    for name, given in WRONG.items():
        for options in given:
            with pytest.raises(InvalidJob, match=name):
                handlers.record.using(**options).enqueue(number=1)
            with pytest.raises(InvalidJob, match=name):
                handlers.record.enqueue_many([handlers.record.using(**options).item(number=1)])
            count += 2
    for table in ("awa.jobs", "awa.jobs_hot", "awa.scheduled_jobs"):
        for column, value in RAW:
            with pytest.raises(psycopg.errors.IntegrityError):
                database.connection.execute(
                    f"INSERT INTO {table} (kind, {column}) VALUES ('k', {value})".encode()
                )
            count += 1
        for kind in ("''", "repeat('k', 201)", "NULL"):
            with pytest.raises(psycopg.errors.IntegrityError):
                database.connection.execute(f"INSERT INTO {table} (kind) VALUES ({kind})".encode())
            count += 1
    assert database.states() == {}
    observe(f"{count} refused, nothing half inserted")


@pytest.mark.acceptance
@pytest.mark.fault(
    "F50", injected="queues with names of 60 bytes, of 200 characters of 4 bytes, and of commas and quotes"
)
def test_jobs_of_queues_with_long_and_odd_names_run(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    names = ["q" * 60, "\U0001f40c" * 200, "a 'quoted' \"name\"; --"]
    worker = start_worker("--queues", ",".join(names), awa=FAST)
    worker.wait_ready(database.connection)
    for number, name in enumerate(names):
        handlers.record.using(queue=name).enqueue(number=number)
        database.connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args) VALUES (%s, %s, %s)",
            [handlers.record.handler.kind, name, json.dumps({"number": number})],
        )
    wait_until(lambda: database.effects("record") == [0, 0, 1, 1, 2, 2], message=worker.text)
    assert worker.stop() == 0
    observe("enqueued by Python and by SQL, woken and run")


@pytest.mark.acceptance
@pytest.mark.fault(
    "F51", injected="progress of NUL, surrogate, NaN, bytes, ...; a model instance as the result"
)
@pytest.mark.fault("U35", injected="progress of NUL, surrogate, NaN; a model instance as the result")
def test_what_handlers_report_is_cleaned_and_the_job_ends(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    reports = {what: value_jobs.report.enqueue(what=what).id for what in value_jobs.ODD}
    model = value_jobs.give_model.enqueue().id
    too_large = value_jobs.give_megabytes.enqueue(count=80).id
    assert start_worker("--drain", awa=FAST).wait(100) == 0
    states = {what: database.job(job_id)["state"] for what, job_id in reports.items()}
    assert set(states.values()) <= {"completed", "failed"}, states
    assert database.job(model)["state"] == "completed"
    assert "dropped" in json.dumps(database.job(too_large)["result"])
    assert not {"running", "available", "scheduled", "retryable"} & database.states().keys()
    ended = ", ".join(f"{what} {state}" for what, state in states.items())
    observe(f"{ended}; a model and 80 MB as results: completed, the result said to be dropped")


@pytest.mark.fault("U35", injected="arguments with NUL, a lone surrogate, NaN, in each depth")
def test_arguments_that_postgresql_cannot_hold_are_refused_by_path(
    database: Database, observe: Observe
) -> None:
    for value in ("a\x00b", "\ud800", {"deep": ["x\x00"]}, [float("nan")]):
        with pytest.raises(InvalidJob, match="argument 'what'"):
            handlers.give.enqueue(what=value)  # type: ignore[arg-type]
    assert database.states() == {}
    observe("4 refused, naming the argument")


BAD_ARGS = {
    "an integer of 5,000 digits": '{"number": ' + "9" * 5000 + "}",
    "1e400": '{"number": 1e400}',
    "nested 5,000 deep": '{"number": ' + "[" * 5000 + "]" * 5000 + "}",
    "a missing argument": "{}",
    "an argument too many": '{"number": 1, "more": 2}',
    "another type": '{"number": "one"}',
    "a number beyond 64 bits": '{"number": 18446744073709551616}',
}


@pytest.mark.acceptance
@pytest.mark.fault(
    "F53", injected="rows by SQL: 5,000 digits, 1e400, 5,000 deep, missing and extra arguments"
)
@pytest.mark.fault(
    "F55", injected="rows for a handler whose signature has changed: arguments missing, more, of another type"
)
@pytest.mark.fault("U16", injected="arguments that the codec refuses among 500 good ones")
def test_rows_that_cannot_be_decoded_fail_alone(
    database: Database, start_worker: StartWorker, admin_client: Client, observe: Observe
) -> None:
    good = handlers.record.enqueue_many([{"number": number} for number in range(500)])
    bad = {}
    for name, args in BAD_ARGS.items():
        bad[name] = database.value(
            "INSERT INTO awa.jobs (kind, args, max_attempts, priority) VALUES (%s, %s::jsonb, 1, 1) "
            "RETURNING id",
            value_jobs.measure.handler.kind,
            args,
        )
    listed = admin_client.get("/admin/awa/hotjob/")
    assert listed.status_code == 200
    for name, job_id in bad.items():
        assert admin_client.get(f"/admin/awa/hotjob/{job_id}/change/").status_code == 200, name
    assert start_worker("--drain", "--concurrency", "20", awa=FAST).wait(100) == 0
    assert database.effects("record") == list(range(500))
    assert database.effects("measure") == []
    attempts = database.value(
        "SELECT max(attempt) FROM awa.jobs_hot WHERE id = ANY (%s)", [job.id for job in good]
    )
    assert attempts == 1
    for name, job_id in bad.items():
        [(state, errors)] = database.rows(
            "SELECT state::text, to_jsonb(errors)::text FROM awa.jobs_hot WHERE id = %s", job_id
        )
        assert state == "failed", name
        [entry] = json.loads(errors)
        assert entry["error"], name
        assert admin_client.get(f"/admin/awa/hotjob/{job_id}/change/").status_code == 200, name
    assert database.value("SELECT args::text FROM awa.jobs_hot WHERE id = %s", bad["1e400"]).startswith(
        '{"number": 1000'
    )
    observe(f"500 good rows ran at their first claim; {len(bad)} bad ones failed alone, their arguments kept")


@pytest.mark.acceptance
@pytest.mark.fault("F54", injected="two workers, only one of which has the handlers of a deploy")
def test_kind_of_another_worker_waits_for_it(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    ids = [handlers.record.enqueue(number=number).id for number in range(10)]
    old = start_worker(awa={**FAST, "IMPORTS": []})
    old.wait_ready(database.connection)
    flagged = "SELECT count(*) FROM awa.jobs WHERE metadata ? 'awa:unknown_kind'"
    # Not all of them: a worker that has met the kind claims it no more for a while.
    wait_until(lambda: database.value(flagged) > 0, message=old.text)
    wait_until(lambda: "no handler for kind" in old.text(), message=old.text)
    assert old.text().count("no handler for kind") == 1
    assert database.value("SELECT max(attempt) FROM awa.scheduled_jobs") in (0, None)
    new = start_worker(awa=FAST)
    new.wait_ready(database.connection, children=2)
    handlers.record.enqueue(number=99)
    database.connection.execute("UPDATE awa.scheduled_jobs SET run_at = now()")

    def all_run() -> bool:
        database.connection.execute("UPDATE awa.scheduled_jobs SET run_at = now()")
        return database.states() == {"completed": 11}

    wait_until(all_run, message=new.text)
    assert old.stop() == new.stop() == 0
    jobs = [database.job(job_id) for job_id in ids]
    assert {job["attempt"] for job in jobs} == {1}
    assert all(job["errors"] == [] for job in jobs)
    observe(
        "10 jobs put back uncharged and flagged, a warning in the log; each then ran in its first attempt"
    )


@pytest.mark.acceptance
@pytest.mark.fault("F56", injected="Snooze of 0 s for ever, of -1 s and of 10^9 s")
def test_snoozes_at_the_edges(database: Database, start_worker: StartWorker, observe: Observe) -> None:
    forever = value_jobs.snooze.enqueue(delay=0, times=10**6).id
    wrong = [value_jobs.snooze.enqueue(delay=delay).id for delay in (-1, 1e9, 1e308)]
    after = value_jobs.retry_after.enqueue(delay=-5).id
    record = handlers.record.enqueue(number=1).id
    worker = start_worker(awa=FAST)
    wait_until(lambda: database.job(record)["state"] == "completed", message=worker.text)
    ended = "SELECT count(*) FROM awa.jobs WHERE id = ANY (%s) AND state = 'failed'"
    wait_until(lambda: database.value(ended, [*wrong, after]) == 4, message=worker.text)
    before, began = database.job(forever)["run_lease"], time.monotonic()
    time.sleep(2.0)
    rate = (database.job(forever)["run_lease"] - before) / (time.monotonic() - began)
    wait_until(lambda: database.job(forever)["run_lease"] > 1, message=worker.text)
    assert worker.stop() == 0
    job = database.job(forever)
    assert job["state"] in ("scheduled", "available")
    assert job["attempt"] == 0
    assert job["run_lease"] > 1
    assert job["errors"] == []
    assert rate < 50
    for job_id in [*wrong, after]:
        row = database.job(job_id)
        assert row["state"] == "failed"
        assert "must be" in row["errors"][0]["error"]
    database.connection.execute("DELETE FROM awa.jobs_hot; DELETE FROM awa.scheduled_jobs")
    observe(f"0 s: {rate:.0f} runs a second, attempts given back; -1 s, 10^9 s: failed with the reason")
