"""INSERT INTO awa.jobs: from psql, another language or a trigger, as if it were one table."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, InternalError, NotSupportedError, connection, transaction
from django.db.utils import DataError, ProgrammingError
from psycopg.types.json import Jsonb

from tests.factories import reload_job

pytestmark = pytest.mark.django_db

REFUSED = (IntegrityError, InternalError, NotSupportedError, DataError, ProgrammingError)


def insert(columns: str, values: str, returning: str = "id, state::text") -> tuple[Any, ...]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO awa.jobs ({columns}) VALUES ({values}) RETURNING {returning}")
        row: tuple[Any, ...] = cursor.fetchone()
        return row


def stored(columns: str, values: str) -> dict[str, Any]:
    job_id, state = insert(columns, values)
    job = reload_job(job_id)
    assert job is not None
    assert job.state == state
    found: dict[str, Any] = vars(job)
    return found


def test_kind_and_args_are_enough() -> None:
    job = stored("kind, args", """'shop.send_receipt', '{"order_id": 1}'""")
    assert job["table"] == "awa.jobs_hot"
    assert job["state"] == "available"
    assert job["args"] == {"order_id": 1}
    assert (job["queue"], job["priority"], job["attempt"], job["max_attempts"]) == ("default", 2, 0, 25)
    assert (job["errors"], job["metadata"], job["tags"], job["run_lease"]) == ([], {}, [], 0)


def test_future_run_at_lands_in_the_deferred_table() -> None:
    job = stored("kind, run_at", "'k', now() + interval '1 year'")
    assert (job["table"], job["state"]) == ("awa.scheduled_jobs", "scheduled")


def test_past_run_at_is_available() -> None:
    assert stored("kind, run_at", "'k', now() - interval '1 year'")["state"] == "available"


def test_available_with_a_future_run_at_is_scheduled() -> None:
    assert (
        stored("kind, state, run_at", "'k', 'available', now() + interval '1 hour'")["state"] == "scheduled"
    )


def test_null_state_follows_from_run_at() -> None:
    assert stored("kind, state", "'k', NULL")["state"] == "available"
    assert stored("kind, state, run_at", "'k', NULL, now() + interval '1 hour'")["state"] == "scheduled"


def test_due_scheduled_job_waits_for_its_promotion() -> None:
    assert stored("kind, state", "'k', 'scheduled'")["table"] == "awa.scheduled_jobs"


def test_retryable_goes_to_the_deferred_table() -> None:
    assert stored("kind, state, attempt", "'k', 'retryable', 1")["table"] == "awa.scheduled_jobs"


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_ended_job_has_its_end(state: str) -> None:
    job = stored("kind, state", f"'k', '{state}'")
    assert job["table"] == "awa.jobs_hot"
    assert job["finalized_at"] is not None


def test_given_end_is_kept_and_a_wrong_one_dropped() -> None:
    ended = stored("kind, state, finalized_at", "'k', 'failed', '2020-01-01 00:00+00'")
    assert ended["finalized_at"].year == 2020
    available = stored("kind, finalized_at, heartbeat_at, deadline_at", "'k', now(), now(), now()")
    assert (available["finalized_at"], available["heartbeat_at"], available["deadline_at"]) == (
        None,
        None,
        None,
    )


def test_returning_tells_the_row_that_was_stored() -> None:
    returned = insert(
        "kind, state, run_at, finalized_at",
        "'k', 'available', now() + interval '1 hour', now()",
        returning="id, state::text, finalized_at, queue, created_at = now()",
    )
    assert returned[1:] == ("scheduled", None, "default", True)
    assert reload_job(returned[0]) is not None


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ("kind, id", "'k', 7", "an id of its own"),
        ("kind, run_lease", "'k', 1", "run_lease 1"),
        ("kind, state", "'k', 'running'", "in state running"),
        ("kind, state", "'k', 'waiting_external'", "in state waiting_external"),
        ("args", "'{}'", '"kind"'),
        ("kind, queue", "'k', NULL", '"queue"'),
        ("kind, args", "'k', NULL", '"args"'),
        ("kind, run_at", "'k', NULL", '"run_at"'),
        ("kind, run_lease", "'k', NULL", '"run_lease"'),
        ("kind, errors", "'k', NULL", '"errors"'),
        ("kind, args", "'k', '[1]'", "jobs_args_object"),
        ("kind", "''", "jobs_kind_length"),
        ("kind, run_at", "'k', 'infinity'", "jobs_timestamps_range"),
        ("kind, priority", "'k', 103", "jobs_priority_range"),
        ("kind, tags", "'k', array_fill('t'::text, ARRAY[21])", "jobs_tags_count"),
        ("kind, unique_key", r"'k', '\x00'", "jobs_unique_key_length"),
    ],
)
def test_what_does_not_fit_is_refused(columns: str, values: str, message: str) -> None:
    with pytest.raises(REFUSED, match=message):
        insert(columns, values)


def test_unique_conflict_names_its_constraint() -> None:
    values = r"'k', decode(repeat('ab', 16), 'hex'), B'11101001'"
    insert("kind, unique_key, unique_states", values)
    with pytest.raises(IntegrityError) as raised:
        insert("kind, unique_key, unique_states, run_at", values + ", now() + interval '1 day'")
    assert raised.value.__cause__.diag.constraint_name == "idx_awa_jobs_unique"  # type: ignore[union-attr]


def test_many_rows_in_one_statement_are_routed_one_by_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.jobs (kind, run_at) "
            "SELECT 'k', now() + make_interval(hours => n) FROM generate_series(-4, 5) AS n"
        )
        assert cursor.rowcount == 10
        cursor.execute(
            "SELECT (SELECT count(*) FROM awa.jobs_hot), (SELECT count(*) FROM awa.scheduled_jobs)"
        )
        assert cursor.fetchone() == (5, 5)


@pytest.mark.django_db(transaction=True)
def test_what_clients_send_is_taken_as_by_a_table(clean_queue: None, connect: Any) -> None:
    """docs/raw-sql.md says so: a pipeline, prepared and binary statements, and COPY."""
    session = connect()
    values = ("k", Jsonb({"n": 1}), [Jsonb({"error": "e"})], ["a"], "cancelled")
    with session.pipeline():
        inserted = session.execute(
            "INSERT INTO awa.jobs (kind, args, errors, tags, state) VALUES (%s, %s, %s, %s, %s) "
            "RETURNING args, errors, tags, state::text",
            values,
            prepare=True,
            binary=True,
        )
        session.execute("INSERT INTO awa.jobs (kind) VALUES ('k'), ('k')")
        changed = session.execute(
            "UPDATE awa.jobs AS job SET priority = wanted.priority "
            "FROM (VALUES ('k', 4)) AS wanted (kind, priority) "
            "WHERE job.kind = wanted.kind AND job.state = ANY(%s::awa.job_state[])",
            [["available", "scheduled"]],
        )
    assert inserted.fetchall() == [({"n": 1}, [{"error": "e"}], ["a"], "cancelled")]
    assert changed.rowcount == 2
    with (
        session.cursor() as cursor,
        cursor.copy("COPY awa.jobs (kind, priority) FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.set_types(["text", "int2"])
        copy.write_row(("k", 3))
    assert session.execute("SELECT count(*) FROM awa.jobs_hot WHERE priority = 3").fetchone() == (1,)
    with pytest.raises(psycopg.errors.NotNullViolation):
        session.execute("INSERT INTO awa.jobs (kind, run_at) VALUES ('k', %s)", [None])
    with pytest.raises(psycopg.errors.UndefinedFunction):
        session.execute("SELECT FROM awa.jobs WHERE state = ANY(%s::text[])", [["available"]])
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        session.execute("INSERT INTO awa.jobs (kind, args) VALUES ('k', %s::varchar)", ["{}"])
    session.execute("INSERT INTO awa.jobs (kind, args) VALUES ('k', CAST(%s::varchar AS jsonb))", ["{}"])


def test_who_waits_for_the_queue_is_woken(clean_queue: None, connect: Any) -> None:
    listener = connect()
    listener.execute("LISTEN awa_jobs")
    producer = connect()
    producer.execute("INSERT INTO awa.waiters VALUES ('w', ARRAY['mail'], now() + interval '1 minute')")
    producer.execute("INSERT INTO awa.jobs (kind, queue) VALUES ('k', 'other')")
    producer.execute(
        "INSERT INTO awa.jobs (kind, queue, run_at) VALUES ('k', 'mail', now() + interval '1 day')"
    )
    assert list(listener.notifies(timeout=0.2)) == []
    producer.execute("UPDATE awa.jobs SET state = 'available', run_at = now() WHERE queue = 'mail'")
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["mail"]
    producer.execute("INSERT INTO awa.jobs (kind, queue) VALUES ('k', 'mail')")
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["mail"]
