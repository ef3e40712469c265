"""Bulk enqueue: by COPY, all or nothing, answers in order."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from awa_django import InvalidJob, Unique, enqueue_many, job
from awa_django.enqueue import many


@job(kind="tests.many.receipt")
def receipt(order_id: int, to: str = "") -> None: ...


@job(kind="tests.many.reminder", queue="mail", priority=3, tags=["r"])
def reminder(on: datetime | None = None, **rest: int) -> None: ...


pytestmark = pytest.mark.django_db


def rows(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, kind, queue, priority, args::text, state::text, tags FROM {table} ORDER BY id"
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_nothing_is_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):  # the savepoint
        assert receipt.enqueue_many([]) == []


def test_answers_are_in_order_of_the_items() -> None:
    answers = receipt.enqueue_many({"order_id": number} for number in range(100))
    assert all(answer.created and answer.holder_id is None for answer in answers)
    stored = {row[0]: row[4] for row in rows("awa.jobs_hot")}
    assert [stored[answer.id] for answer in answers] == [f'{{"order_id": {number}}}' for number in range(100)]


def test_kinds_and_due_instants_mix() -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    answers = enqueue_many(
        [
            receipt.item(1, to="a"),
            reminder.using(run_at=at, metadata={"a": "\\N"}).item(on=at, x=1),
            receipt.using(delay=60).item(2),
            reminder.using(
                run_at=at.replace(year=2000), queue="q", priority=1, tags=[], max_attempts=2
            ).item(),
            receipt.using(delay=0).item(3),
        ]
    )
    ids = [answer.id for answer in answers]
    assert [(row[0], row[5]) for row in rows("awa.jobs_hot")] == [
        (ids[0], "available"),
        (ids[3], "available"),
        (ids[4], "available"),
    ]
    assert [(row[0], row[5]) for row in rows("awa.scheduled_jobs")] == [
        (ids[1], "scheduled"),
        (ids[2], "scheduled"),
    ]
    later = reminder.get(ids[1])
    assert (later.queue, later.priority, later.tags, later.run_at) == ("mail", 3, ("r",), at)
    assert later.args == {"on": "2100-01-01T00:00:00Z", "x": 1}
    assert later.metadata == {"a": "\\N"}
    own = reminder.get(ids[3])
    assert (own.queue, own.priority, own.tags, own.max_attempts) == ("q", 1, (), 2)


def test_single_and_bulk_store_the_same_row() -> None:
    options: dict[str, Any] = {
        "run_at": datetime(2100, 1, 1, tzinfo=UTC),
        "metadata": {"m": [1]},
        "tags": ["a,b"],
    }
    made = receipt.using(**options, unique=None)
    single, [many] = made.enqueue(1, to='a\\"\t'), made.enqueue_many([made.item(1, to='a\\"\t')])
    keyed = receipt.using(**options, unique=Unique(args=True))
    one, [two] = keyed.enqueue(2), keyed.enqueue_many([{"order_id": 3}])
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(job) - 'id' FROM awa.scheduled_jobs AS job ORDER BY id")
        first, second, *_ = [row[0] for row in cursor.fetchall()]
        assert first == second
        cursor.execute(
            """
            SELECT DISTINCT to_jsonb(job) - '{id,args,unique_key}'::text[]
            FROM awa.scheduled_jobs AS job
            WHERE id = ANY (%s)
            """,
            [[one.id, two.id]],
        )
        assert len(cursor.fetchall()) == 1
    assert (single.created, many.created) == (True, True)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([{"order_id": 1}, {"order_id": "x"}], "item 1 of the batch: argument 'order_id'"),
        ([{"order_id": 1}, {"x": 1}], "item 1 of the batch: .*order_id"),
        ([{"order_id": 1}, {"order_id": 1}, 5], "item 2 of the batch: expected a dict or job.item"),
    ],
)
def test_bad_item_is_refused_by_its_place_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, items: Any, why: str
) -> None:
    monkeypatch.setattr(many, "CHUNK", 1)
    with pytest.raises(InvalidJob, match=why):
        receipt.enqueue_many(items)
    assert rows("awa.jobs") == []


def test_batch_of_several_kinds_takes_items_only() -> None:
    wrong: Any = {"order_id": 2}
    with pytest.raises(InvalidJob, match=r"item 1 of the batch: expected job\.item"):
        enqueue_many([receipt.item(1), wrong])
    assert rows("awa.jobs") == []


def test_failing_generator_leaves_nothing_and_the_transaction_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "CHUNK", 2)

    def broken() -> Iterator[dict[str, object]]:
        for number in range(5):
            yield {"order_id": number}
        raise RuntimeError("the source broke")

    with transaction.atomic():
        with pytest.raises(RuntimeError, match="the source broke"):
            receipt.enqueue_many(broken())
        receipt.enqueue(1)
    assert len(rows("awa.jobs")) == 1


def test_generator_may_read_the_database_on_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "CHUNK", 2)
    User.objects.bulk_create(User(username=str(number)) for number in range(5))
    users = User.objects.order_by("pk").iterator(chunk_size=2)
    answers = receipt.enqueue_many({"order_id": user.pk} for user in users)
    assert [receipt.get(answer.id).args["order_id"] for answer in answers] == list(
        User.objects.order_by("pk").values_list("pk", flat=True)
    )


def test_chunks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "CHUNK", 3)
    unique = receipt.using(unique=Unique(args=True))
    answers = enqueue_many(
        [unique.item(number % 5) if number % 2 else receipt.item(number) for number in range(20)]
    )
    assert len(answers) == 20
    assert [answer.created for answer in answers].count(False) == 5
    assert len({answer.id for answer in answers}) == 15
    assert {row[0] for row in rows("awa.jobs_hot")} == {answer.id for answer in answers}


def test_statements_of_a_batch(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(5):  # savepoint, ids, COPY, wake, release
        receipt.enqueue_many([{"order_id": 1}] * 100)


def test_memory_of_a_long_batch_is_bounded() -> None:
    """What stays for each job is its answer: 25,000 jobs of 1 kB must not be 40 MB."""
    tracemalloc.start()
    try:
        answers = receipt.enqueue_many({"order_id": number, "to": "a" * 1000} for number in range(25_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answers) == 25_000
    assert peak < 40_000_000
