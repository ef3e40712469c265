"""COPY: what it stores, whatever the values hold, and the errors it raises."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.transaction import TransactionManagementError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from awa_django.storage.copy import copy_jobs, reserve_ids, take_unique_keys
from awa_django.storage.insert import (
    database_now,
    find_unique_holders,
    insert_job,
    insert_job_at,
    insert_unique_job,
)
from tests.storage.test_insert import KEY, OTHER_KEY, UNFINISHED, new_job, rows, tables_of, unique_job

pytestmark = pytest.mark.django_db

# All that PostgreSQL can store, and what COPY or an array gives a meaning of its own more often.
TEXTS = st.lists(
    st.sampled_from(
        ["\\", "\\N", "\\.", "\\x41", "\\t", "\t", "\n", "\r", "\b", "\x7f", '"', "'", ",", "{", "}"]
    )
    | st.sampled_from(["NULL", "%s", "ü", "\u2028", "\N{PILE OF POO}", " "])
    | st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
    max_size=10,
).map("".join)
NAMES = TEXTS.filter(bool)
JSON_OBJECTS = st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.lists(TEXTS, max_size=3), max_size=3)


def test_reserved_ids_are_distinct_and_in_order() -> None:
    now, ids = reserve_ids(connection, 1000)
    assert ids == sorted(set(ids))
    assert len(ids) == 1000
    assert now == database_now(connection)
    assert insert_job(connection, new_job()).job_id > ids[-1]


def test_take_unique_keys_answers_with_those_that_were_free() -> None:
    insert_unique_job(connection, unique_job())
    _, (first, second) = reserve_ids(connection, 2)
    assert take_unique_keys(connection, [(OTHER_KEY, second), (KEY, first)]) == {second}


@settings(max_examples=100)
@example(
    kind="\\N", queue="\\.", args={"\\N": "\\"}, metadata={"\\": "\n"}, tags=["\\N", "", "NULL", '"'], later=0
)
@given(
    kind=NAMES,
    queue=NAMES,
    args=JSON_OBJECTS,
    metadata=JSON_OBJECTS,
    tags=st.lists(TEXTS, max_size=3),
    later=st.sampled_from([-1, 0, 1]),
)
def test_copy_stores_what_insert_stores(
    kind: str, queue: str, args: dict[str, Any], metadata: dict[str, Any], tags: list[str], later: int
) -> None:
    now = database_now(connection)
    job = new_job(
        kind=kind,
        queue=queue,
        args=json.dumps(args, ensure_ascii=False),
        metadata=json.dumps(metadata, ensure_ascii=False),
        tags=tuple(tags),
        run_at=now + timedelta(hours=later),
        priority=4,
        max_attempts=3,
    )
    inserted, is_due, _ = insert_job_at(connection, job)
    _, (copied,) = reserve_ids(connection, 1)
    assert copy_jobs(connection, [(copied, job)], now=now) == ({queue} if is_due else set())
    columns = rows("SELECT to_jsonb(job) - 'id' FROM awa.jobs AS job WHERE id = ANY (%s)", [inserted, copied])
    assert len(columns) == 2
    assert columns[0] == columns[1]


def test_copy_of_plain_jobs_stores_what_insert_stores() -> None:
    now, (first, second) = reserve_ids(connection, 2)
    job = new_job(kind="\\N", queue="q\t\\\n", args='{"a":"\\\\N\\t\\u0001"}', priority=4, max_attempts=3)
    inserted = insert_job(connection, job).job_id
    assert copy_jobs(connection, [(first, job), (second, job)], now=now) == {"q\t\\\n"}
    columns = rows(
        "SELECT DISTINCT to_jsonb(job) - 'id' FROM awa.jobs_hot AS job WHERE id = ANY (%s)",
        [inserted, first, second],
    )
    assert len(columns) == 1


def test_jobs_of_many_shapes_go_each_into_its_table() -> None:
    now, ids = reserve_ids(connection, 6)
    plain, later = new_job(args='{"n":1}'), new_job(delay=timedelta(hours=1), queue="later")
    keyed = new_job(queue="unique", unique_key=OTHER_KEY, unique_states=UNFINISHED)
    past, tagged = new_job(run_at=datetime(1, 2, 1, tzinfo=UTC)), new_job(tags=("a",), queue="tagged")
    take_unique_keys(connection, [(OTHER_KEY, ids[2])])
    jobs = list(zip(ids, [plain, later, keyed, past, tagged, plain], strict=True))
    assert copy_jobs(connection, jobs, now=now) == {"default", "unique", "tagged"}
    assert [tables_of(job_id) for job_id in ids] == [["hot"], ["deferred"], *[["hot"]] * 4]
    stored = rows(
        "SELECT run_at, unique_key, unique_states::text FROM awa.jobs WHERE id = ANY (%s) ORDER BY id", ids
    )
    assert [row[0] - now for row in stored[:3]] == [timedelta(0), timedelta(hours=1), timedelta(0)]
    assert stored[3][0] == datetime(1, 2, 1, tzinfo=UTC)
    assert [key and bytes(key) for _, key, _ in stored] == [None, None, OTHER_KEY, None, None, None]
    assert [states for _, _, states in stored] == [None, None, UNFINISHED, None, None, None]
    assert find_unique_holders(connection, [OTHER_KEY]) == {OTHER_KEY: ids[2]}


def test_copy_raises_the_errors_of_django() -> None:
    now, (job_id,) = reserve_ids(connection, 1)
    with pytest.raises(DatabaseError), transaction.atomic():
        copy_jobs(connection, [(job_id, new_job(priority=1000))], now=now)
    assert tables_of(job_id) == []


def test_copy_refuses_a_broken_transaction() -> None:
    now, (job_id,) = reserve_ids(connection, 1)
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            copy_jobs(connection, [(job_id, new_job())], now=now)
