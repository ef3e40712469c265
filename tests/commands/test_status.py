"""``awa_status`` and ``awa_queues``: what they count, print and exit with."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from awa_django.management import status
from awa_django.storage import status as storage
from awa_django.storage._sql import statement
from tests.commands.conftest import Manage
from tests.factories import insert_job, update_job
from tests.plans.test_plans import _nodes

QUEUE_KEYS = {
    "queue", "paused", "paused_by", "paused_until", "available", "oldest_available_seconds", "running",
    "deferred", "due_soon", "overdue", "oldest_overdue_seconds", "failed", "capped",
}  # fmt: skip


def execute(text: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, params)


def fill() -> None:
    old = insert_job(queue="mail", priority=4)
    update_job(old, run_at="now() - interval '10 minutes'")
    insert_job(queue="mail", priority=1)
    insert_job("running", queue="mail")
    insert_job("failed", queue="mail")
    insert_job("completed", queue="mail")
    later = insert_job("scheduled", queue="mail")
    update_job(later, run_at="now() + interval '2 hours'")
    soon = insert_job("scheduled", queue="mail")
    update_job(soon, run_at="now() + interval '30 s'")
    overdue = insert_job("retryable", queue="reports")
    update_job(overdue, run_at="now() - interval '20 minutes'")
    execute("INSERT INTO awa.queue_meta (queue, paused, paused_by) VALUES ('night', true, 'ann')")
    execute(
        "INSERT INTO awa.runtime_instances (name, supervisor, hostname, pid, version, queues, concurrency, "
        "running_count, last_seen_at) VALUES ('w', NULL, 'host', 7, '1', '{mail}', 0, 1, now()), "
        "('w-1', 'w', 'host', 8, '1', '{mail}', 4, 1, now() - interval '5 minutes'), "
        "('w-2', 'w', 'host', 9, '1', '{mail}', 4, 0, now() - interval '11 minutes')"
    )
    execute("UPDATE awa.leaders SET holder = 'w', expires_at = now() + interval '20 s' WHERE duty = 'cron'")
    execute(
        "INSERT INTO awa.queue_stats (minute, queue, kind, completed_count, failed_count, wait_seconds, "
        "run_seconds) SELECT date_trunc('minute', now()) - make_interval(mins => ago), 'mail', 'k', "
        "3, 1, 8, 2 FROM unnest(ARRAY[0, 1, 4, 15, 16]) AS ago"
    )


@pytest.mark.django_db
def test_document_has_every_number(manage: Manage) -> None:
    fill()
    found = manage("awa_status", "--json").document
    mail, night, reports = found["queues"]
    assert set(mail) == QUEUE_KEYS
    assert (mail["available"], mail["running"], mail["deferred"], mail["due_soon"]) == (2, 1, 2, 1)
    assert (mail["overdue"], mail["failed"], mail["capped"]) == (0, 1, [])
    assert 600 <= mail["oldest_available_seconds"] < 700
    assert (night["paused"], night["paused_by"], night["oldest_available_seconds"]) == (True, "ann", None)
    assert 1_200 <= reports["oldest_overdue_seconds"] < 1_300
    assert found["longest_wait_seconds"] == reports["oldest_overdue_seconds"]
    assert found["promotion_lag_seconds"] == pytest.approx(reports["oldest_overdue_seconds"], abs=60)
    told = [(worker["name"], worker["state"]) for worker in found["workers"]]
    assert told == [("w", "alive"), ("w-1", "silent"), ("w-2", "gone")]
    assert found["leaders"][0]["holder"] == "w"
    assert found["leaders"][1]["holder"] is None
    assert [span["completed"] for span in found["throughput"]] == [3, 6, 9]
    assert (found["throughput"][0]["mean_wait_seconds"], found["throughput"][0]["mean_run_seconds"]) == (
        2,
        0.5,
    )
    assert found["schema_version"] == found["expected_schema_version"]


@pytest.mark.django_db
def test_screen_shows_the_same(manage: Manage) -> None:
    fill()
    for terminal in (False, True):
        text = manage("awa_status", terminal=terminal).stdout
        for expected in (
            "mail",
            "10 min",
            "paused by ann",
            "20 min",
            "silent",
            "gone",
            "nobody",
            "15 min",
            "0 s",
        ):
            assert expected in text, terminal


@pytest.mark.django_db
def test_who_has_no_worker_is_told_how_to_start_one(manage: Manage) -> None:
    said = "no worker runs: `python manage.py awa_worker` starts one"
    assert said in manage("awa_status").stdout
    fill()
    assert said not in manage("awa_status").stdout
    execute("UPDATE awa.runtime_instances SET last_seen_at = now() - interval '1 hour'")
    assert said in manage("awa_status").stdout


@pytest.mark.django_db
def test_counts_stop_at_the_cap(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "cap_for", lambda _: 3)
    for _ in range(4):
        insert_job(queue="mail")
        insert_job("scheduled", queue="mail", run_at="2999-01-01")
    [queue] = manage("awa_queues", "list", "--json").document
    assert (queue["available"], queue["deferred"], queue["capped"]) == (3, 3, ["available", "deferred"])
    assert manage("awa_queues", "list").stdout.count("over 3") == 2


@pytest.mark.django_db
def test_probe_tells_by_its_exit_code(manage: Manage) -> None:
    assert manage("awa_status", "--max-wait", "15m").code == 0
    fill()
    probe = manage("awa_status", "--json", "--max-wait", "15m")
    assert probe.code == 1
    assert probe.document
    assert "20 min, longer than 15 min" in probe.stderr
    assert manage("awa_status", "--max-wait", "1h").code == 0
    assert manage("awa_status", "--max-wait", "15m", "--queue", "mail").code == 0
    assert manage("awa_status", "--max-wait", "9m", "--queue", "mail").code == 1
    mistyped = manage("awa_status", "--max-wait", "9m", "--queue", "mial")
    assert (mistyped.code, "'mial'" in mistyped.stderr) == (0, True)
    alone = manage("awa_status", "--queue", "mail")
    assert (alone.code, "give both" in alone.error) == (2, True)


@pytest.mark.django_db
def test_paused_queue_is_not_late(manage: Manage) -> None:
    late = insert_job(queue="night")
    update_job(late, run_at="now() - interval '1 day'")
    assert manage("awa_status", "--max-wait", "1h").code == 1
    execute("INSERT INTO awa.queue_meta (queue, paused) VALUES ('night', true)")
    assert manage("awa_status", "--max-wait", "1h").code == 0


@pytest.mark.django_db
def test_watch_goes_on_until_it_is_interrupted(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []

    def sleep(seconds: int) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    ended = manage("awa_status", "--watch", "5", terminal=True)
    assert (ended.code, slept) == (0, [5, 5, 5])
    assert ended.stdout.count("\x1b[2J") == 3
    assert "document" in manage("awa_status", "--watch", "--json").error


@pytest.mark.django_db
def test_number_of_statements_does_not_grow(manage: Manage) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            manage("awa_status", "--json")
        return len(queries)

    count()
    before = count()
    fill()
    assert count() == before


@pytest.mark.django_db
def test_pause_and_resume(manage: Manage) -> None:
    insert_job(queue="mail")
    assert manage("awa_queues", "pause", "mail").stdout == "mail is paused until it is resumed\n"
    again = manage("awa_queues", "pause", "mail", "--json").document
    assert again == {"queue": "mail", "paused": True, "paused_until": None, "changed": False}
    paused = manage("awa_queues", "pause", "mail", "--for", "2h", "--json")
    assert (paused.document["changed"], paused.stderr) == (True, "")
    assert paused.document["paused_until"] is not None
    assert "paused until 20" in manage("awa_queues", "list").stdout
    assert manage("awa_queues", "resume", "mail").stdout == "mail is resumed\n"
    assert manage("awa_queues", "resume", "mail").stdout == "mail was not paused\n"


@pytest.mark.django_db
def test_pausing_an_unknown_queue_is_said(manage: Manage) -> None:
    ended = manage("awa_queues", "pause", "mial", "--json")
    assert ended.document["paused"] is True
    assert "'mial'" in ended.stderr


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("pause", "mail", "--for", "soon"), "no duration"),
        (("pause", "mail", "--until", "never"), "no instant"),
        (("pause", "mail", "--until", "2001-01-01"), "has passed"),
        (("pause", "mail", "--for", "1h", "--until", "2999-01-01"), "not allowed with"),
        (("pause", ""), "1 to 200 characters"),
        (("resume", "x" * 201), "1 to 200 characters"),
        (("list", "--database", "nowhere"), "no database alias 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(manage: Manage, arguments: tuple[str, ...], error: str) -> None:
    ended = manage("awa_queues", *arguments, "--json")
    assert ended.code in (1, 2)
    assert error in ended.error
    assert "\n" not in ended.error
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["awa_status", "awa_queues list", "awa_queues resume mail"])
def test_database_that_is_down_is_said_in_one_line(manage: Manage, dead_alias: str, command: str) -> None:
    ended = manage(*command.split(), "--database", dead_alias, "--json")
    assert (ended.code, ended.stdout) == (3, "")
    assert ended.error.startswith("the database could not be asked: ")
    assert "\n" not in ended.error


@pytest.mark.django_db
def test_missing_schema_is_said(manage: Manage) -> None:
    execute("DROP SCHEMA awa CASCADE")
    ended = manage("awa_status")
    assert ended.code == 3
    assert "migrate awa" in ended.error


@pytest.mark.django_db
def test_statement_that_takes_too_long_is_ended(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "PATIENCE", timedelta(milliseconds=50))

    def sleep(_: Any) -> None:
        execute("SELECT pg_sleep(30)")

    monkeypatch.setattr(storage, "promotion_lag", sleep)
    ended = manage("awa_status")
    assert ended.code == 3
    assert "too long" in ended.error


def test_no_big_table_is_scanned(fresh_tables: None, database_url: str) -> None:
    params = {
        "queues": ["a", "b"], "with_others": True, "cap": 501, "failed_cap": 501, "soon": 60.0,
        "spans": [1, 5, 15], "since": None,
    }  # fmt: skip
    plans: dict[str, Any] = {}
    with psycopg.connect(database_url) as session:
        for table, run_at in (("jobs_hot", "now()"), ("scheduled_jobs", "now() + number * interval '1 s'")):
            session.execute(
                f"INSERT INTO awa.{table} (kind, queue, run_at) SELECT 'k', chr(97 + number % 2), {run_at} "
                "FROM generate_series(1, 20000) AS number".encode()
            )
            session.execute(f"ANALYZE awa.{table}".encode())
        for name in ("queue_status", "next_due", "status_throughput"):
            row = session.execute(f"EXPLAIN (FORMAT JSON) {statement(name)}".encode(), params).fetchone()
            assert row is not None
            plans[name] = row[0][0]["Plan"]
        session.rollback()
    for name, plan in plans.items():
        scans = [node for node in _nodes(plan) if node["Node Type"] == "Seq Scan"]
        assert not [scan for scan in scans if "jobs" in scan["Relation Name"]], name
