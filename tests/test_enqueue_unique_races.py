"""Rivals for one key, in sessions of their own: one wins, and no transaction is lost by it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from awa_django import Enqueued, UniqueConflict, enqueue_many
from awa_django.enqueue import many
from tests.conftest import Connect
from tests.sessions import is_blocked
from tests.unique_jobs import (
    assert_claims_match,
    hourly,
    job_count,
    plain,
    run,
    sync,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db


def in_threads(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Run it in threads that start together, each with its own connection of Django's."""
    barrier = threading.Barrier(count)

    def call(number: int) -> Any:
        try:
            barrier.wait()
            return function(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


RIVAL = "INSERT INTO awa.jobs_hot (kind, unique_key, unique_states) VALUES ('k', %s, B'11101001')"


class Boom(Exception):
    pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
class TestRaces:
    @pytest.mark.parametrize("threads", [2, 5, 10])
    @pytest.mark.parametrize("ends", ["commit", "some roll back", "in a savepoint"])
    @pytest.mark.fault("F57", injected="2, 5, 10 rivals for a key; some roll back or use savepoints")
    def test_one_of_many_wins_a_key(self, threads: int, ends: str) -> None:
        def enqueue(number: int) -> Enqueued | None:
            try:
                with transaction.atomic():
                    if ends == "in a savepoint":
                        with transaction.atomic():
                            return sync.enqueue(1)
                    answer = sync.enqueue(1)
                    if ends == "some roll back" and number % 2:
                        raise Boom
                    return answer
            except Boom:
                return None

        answers = [answer for answer in in_threads(threads, enqueue) if answer is not None]
        winners = [answer for answer in answers if answer.created]
        assert len(winners) == 1
        assert {answer.id for answer in answers} == {winners[0].id}
        assert job_count() == 1
        assert_claims_match()

    @pytest.mark.fault("U32", injected="the rival that is waited for rolls back")
    def test_rival_that_rolls_back_leaves_the_key(self, connect: Connect) -> None:
        rival, observer = connect(autocommit=False), connect()
        rival.execute(
            RIVAL,
            [key()],
        )
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(in_threads, 1, lambda _: sync.enqueue(1))
            wait_until(lambda: is_blocked(observer), message="the enqueue waits for its rival")
            rival.rollback()
            [answer] = waiting.result()
        assert answer.created
        assert_claims_match()

    def test_rival_that_commits_is_named(self, connect: Connect) -> None:
        rival, observer = connect(autocommit=False), connect()
        [(rival_id,)] = rival.execute(
            f"{RIVAL} RETURNING id",
            [key()],
        ).fetchall()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                in_threads, 1, lambda _: sync.enqueue_many([{"account": 1}, {"account": 2}])
            )
            wait_until(lambda: is_blocked(observer), message="the batch waits for its rival")
            rival.commit()
            [answers] = waiting.result()
        assert [answer.holder_id for answer in answers] == [rival_id, None]
        assert_claims_match()

    @pytest.mark.parametrize(
        "enqueue", [lambda: sync.enqueue(1), lambda: sync.enqueue_many([{"account": 1}])]
    )
    @pytest.mark.fault("U32", injected="the caller's lock_timeout ends the wait for a rival")
    def test_lock_timeout_is_a_unique_conflict(self, connect: Connect, enqueue: Any) -> None:
        rival = connect(autocommit=False)
        rival.execute("INSERT INTO awa.job_unique_claims VALUES (%s, 0)", [key()])
        with pytest.raises(UniqueConflict, match="roll back and try again") as caught, transaction.atomic():  # noqa: PT012
            run("SET LOCAL lock_timeout = '50ms'")
            enqueue()
        assert caught.value.holder_id is None
        assert caught.value.__cause__ is not None
        rival.rollback()
        assert sync.enqueue(1).created

    @pytest.mark.fault("U32", injected="a rival commits under REPEATABLE READ")
    def test_repeatable_read_ends_in_a_unique_conflict(self, connect: Connect) -> None:
        rival = connect()
        with pytest.raises(UniqueConflict), transaction.atomic():  # noqa: PT012
            run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            run("SELECT 1")
            rival.execute(
                RIVAL,
                [key()],
            )
            sync.enqueue(1)
        assert not sync.enqueue(1).created

    def test_another_database_error_passes(self, connect: Connect) -> None:
        rival = connect(autocommit=False)
        rival.execute("INSERT INTO awa.job_unique_claims VALUES (%s, 0)", [key()])
        with pytest.raises(OperationalError, match="statement timeout"), transaction.atomic():  # noqa: PT012
            run("SET LOCAL statement_timeout = '50ms'")
            sync.enqueue(1)

    @pytest.mark.fault("F64", injected="6 batches of 60 keys in opposite orders at once")
    def test_batches_in_opposite_order_do_not_deadlock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Chunks of 7, so that a batch takes its keys in many statements.
        monkeypatch.setattr(many, "CHUNK", 7)
        numbers = list(range(60))

        def enqueue(number: int) -> list[Enqueued]:
            order = numbers if number % 2 else numbers[::-1]
            return sync.enqueue_many({"account": account} for account in order)

        answers = in_threads(6, enqueue)
        created = Counter(answer.created for batch in answers for answer in batch)
        assert created == {True: 60, False: 300}
        assert job_count() == 60
        assert_claims_match()

    def test_kinds_mix_in_one_batch(self) -> None:
        answers = enqueue_many([sync.item(1), plain.using(delay=60).item(2), hourly.item(), sync.item(1)])
        assert [answer.created for answer in answers] == [True, True, True, False]
        assert job_count() == 3
        assert_claims_match()


def key() -> bytes:
    unique = sync.handler.unique
    assert unique is not None
    return unique.key("tests.unique.sync", queue="default", args={"account": 1, "full": False}, at=None)
