from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage.insert import (
    JobShape,
    NewJob,
    database_now,
    find_unique_holders,
    insert_job,
    insert_job_at,
    insert_unique_job,
)
from awa_django.storage.lookup import find_job
from awa_django.storage.wake import wake

pytestmark = pytest.mark.django_db

KEY, OTHER_KEY = b"k" * 16, b"\x00" * 16
UNFINISHED = "11101001"


def new_job(*, args: str = "{}", unique_key: bytes | None = None, **changes: Any) -> NewJob:
    shape = JobShape(**{"kind": "k", "queue": "default", "priority": 2, "max_attempts": 25, **changes})
    return NewJob(shape, args, unique_key)


def unique_job(**changes: Any) -> NewJob:
    return new_job(unique_key=KEY, unique_states=UNFINISHED, **changes)


def rows(query: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def tables_of(job_id: int) -> list[str]:
    return [
        name
        for (name,) in rows(
            "SELECT 'hot' FROM awa.jobs_hot WHERE id = %s "
            "UNION ALL SELECT 'deferred' FROM awa.scheduled_jobs WHERE id = %s",
            job_id,
            job_id,
        )
    ]


def test_plain_job_leaves_the_rest_to_the_defaults() -> None:
    job = new_job(queue="mail", args='{"a": 1}', priority=4, max_attempts=3)
    stored = find_job(connection, insert_job(connection, job).job_id)
    assert stored is not None
    assert (stored.kind, stored.queue, stored.args, stored.state) == ("k", "mail", '{"a": 1}', "available")
    assert (stored.priority, stored.max_attempts, stored.metadata, stored.tags) == (4, 3, "{}", [])
    assert stored.run_at == stored.created_at == database_now(connection)


@pytest.mark.parametrize(
    "changes",
    [
        {"tags": ("a",)},
        {"metadata": '{"a": 1}'},
        {"delay": timedelta(0)},
        {"run_at": datetime(2000, 1, 1, tzinfo=UTC)},
        {"unique_key": KEY, "unique_states": UNFINISHED},
    ],
)
def test_plain_insert_drops_nothing_in_silence(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        insert_job(connection, new_job(**changes))


def test_insert_job_at_stores_every_column() -> None:
    job = new_job(
        queue="q\"'%\\",
        args='{"a": "%s \\\\"}',
        priority=4,
        max_attempts=3,
        metadata='{"m": 1}',
        tags=("a,b", '"', "\\", "ü", "NULL"),
    )
    job_id, is_due, _ = insert_job_at(connection, job)
    stored = find_job(connection, job_id)
    assert is_due
    assert stored is not None
    assert (stored.kind, stored.queue, stored.args, stored.metadata) == (
        "k",
        "q\"'%\\",
        '{"a": "%s \\\\"}',
        '{"m": 1}',
    )
    assert (stored.priority, stored.max_attempts, stored.state, stored.attempt) == (4, 3, "available", 0)
    assert stored.tags == ["a,b", '"', "\\", "ü", "NULL"]
    assert stored.run_at == stored.created_at == database_now(connection)


@pytest.mark.parametrize(
    ("when", "table"),
    [
        ({"delay": timedelta(0)}, "hot"),
        ({"delay": timedelta(microseconds=1)}, "deferred"),
        ({"delay": timedelta(days=36_525)}, "deferred"),
        ({"run_at": datetime(1, 2, 1, tzinfo=UTC)}, "hot"),
        ({"run_at": datetime(9999, 12, 1, tzinfo=UTC)}, "deferred"),
    ],
)
@pytest.mark.parametrize("unique", [False, True])
def test_job_goes_where_the_database_clock_says(when: Any, table: str, unique: bool) -> None:
    if unique:
        inserted = insert_unique_job(connection, unique_job(**when))
        assert inserted is not None
        job_id, is_due, _ = inserted
    else:
        job_id, is_due, _ = insert_job_at(connection, new_job(**when))
    assert tables_of(job_id) == [table]
    assert is_due == (table == "hot")
    stored = find_job(connection, job_id)
    assert stored is not None
    assert stored.state == ("available" if is_due else "scheduled")
    assert stored.run_at == when.get("run_at", database_now(connection) + when.get("delay", timedelta(0)))


def test_run_at_equal_to_now_is_due() -> None:
    job_id, is_due, _ = insert_job_at(connection, new_job(run_at=database_now(connection)))
    assert is_due
    assert tables_of(job_id) == ["hot"]


def test_unique_job_is_inserted_once_and_claims_its_key() -> None:
    inserted = insert_unique_job(connection, unique_job())
    assert inserted is not None
    assert insert_unique_job(connection, unique_job()) is None
    assert find_unique_holders(connection, [KEY, OTHER_KEY]) == {KEY: inserted[0]}
    assert rows("SELECT count(*) FROM awa.jobs_hot WHERE unique_key = %s", KEY) == [(1,)]


def test_duplicate_leaves_no_row_in_either_table() -> None:
    insert_unique_job(connection, unique_job(delay=timedelta(hours=1)))
    assert insert_unique_job(connection, unique_job()) is None
    assert insert_unique_job(connection, unique_job(delay=timedelta(hours=2))) is None
    assert rows("SELECT count(*) FROM awa.jobs_hot") == [(0,)]
    assert rows("SELECT count(*) FROM awa.scheduled_jobs") == [(1,)]


@pytest.mark.parametrize(
    "end", ["DELETE FROM awa.jobs_hot", "UPDATE awa.jobs_hot SET state='completed', finalized_at=now()"]
)
def test_key_is_free_when_its_job_has_ended(end: str) -> None:
    insert_unique_job(connection, unique_job())
    with connection.cursor() as cursor:
        cursor.execute(end)
    assert insert_unique_job(connection, unique_job()) is not None


def test_wake_says_whether_anybody_waits() -> None:
    assert wake(connection, ["mail", "default"]) is False
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.waiters VALUES ('w', '{mail}', now() + interval '1 minute')")
    assert wake(connection, ["default"]) is False
    assert wake(connection, ["mail", "default"]) is True


def test_find_job_reads_both_tables() -> None:
    hot = insert_job(connection, new_job()).job_id
    deferred, _, _ = insert_job_at(connection, new_job(delay=timedelta(days=1)))
    assert [job and job.state for job in (find_job(connection, hot), find_job(connection, deferred))] == [
        "available",
        "scheduled",
    ]
    assert find_job(connection, 2**62) is None
