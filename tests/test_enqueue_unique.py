"""Uniqueness: one holder of a key at a time, whoever races, and a transaction that stays usable."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from awa_django import Enqueued, InvalidJob, Unique, UniqueConflict, enqueue_many, job
from awa_django.enqueue import bulk, forget_waiters, single
from tests.conftest import Connect
from tests.waiting import wait_until


@job(kind="tests.unique.sync", unique=Unique(args=True))
def sync(account: int, full: bool = False) -> None: ...


@job(kind="tests.unique.by_account", unique=Unique(args=("account",)))
def by_account(account: int, full: bool = False) -> None: ...


@job(kind="tests.unique.strict", unique=Unique(args=True, on_conflict="raise"))
def strict(account: int) -> None: ...


@job(kind="tests.unique.hourly", unique=Unique(period=timedelta(hours=1)))
def hourly() -> None: ...


@job(kind="tests.unique.per_queue", unique=Unique(queue=True))
def per_queue() -> None: ...


@job(kind="tests.unique.plain")
def plain(number: float) -> None: ...


pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def ask_for_waiters() -> Iterator[None]:
    forget_waiters()
    yield
    forget_waiters()


def run(query: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return cursor.fetchall() if cursor.description else []


def job_count() -> int:
    return int(
        run("SELECT (SELECT count(*) FROM awa.jobs_hot) + (SELECT count(*) FROM awa.scheduled_jobs)")[0][0]
    )


def assert_claims_match() -> None:
    """Each claim has its job and each job in a holding state its claim (the bijection of keys)."""
    claims = run("SELECT unique_key, job_id FROM awa.job_unique_claims ORDER BY 2")
    holders = run(
        """
        SELECT unique_key, id FROM (
            SELECT * FROM awa.jobs_hot UNION ALL SELECT * FROM awa.scheduled_jobs
        ) AS job
        WHERE awa.holds_unique_key(state, unique_key, unique_states) ORDER BY 2
        """
    )
    assert claims == holders


def test_duplicate_is_answered_with_the_holder() -> None:
    first = sync.enqueue(1)
    assert first.created
    assert sync.enqueue(1) == Enqueued(first.id, False, first.id)
    assert sync.using(delay=60).enqueue(1, full=False) == Enqueued(first.id, False, first.id)
    assert sync.enqueue(1, full=True).created
    assert sync.enqueue(2).created
    assert job_count() == 3
    assert_claims_match()


def test_deferred_job_holds_its_key_too() -> None:
    first = sync.using(delay=60).enqueue(1)
    assert sync.enqueue(1).holder_id == first.id
    assert_claims_match()


def test_key_may_count_some_arguments() -> None:
    first = by_account.enqueue(1)
    assert by_account.enqueue(1, full=True).holder_id == first.id
    assert by_account.enqueue(2).created


def test_key_may_count_the_queue() -> None:
    first = per_queue.enqueue()
    assert per_queue.using(queue="other").enqueue().created
    assert per_queue.enqueue().holder_id == first.id


def test_uniqueness_may_be_set_for_one_enqueue() -> None:
    first = sync.enqueue(1)
    assert sync.using(unique=None).enqueue(1).created
    assert plain.using(unique=Unique(args=True)).enqueue(1).created
    assert not plain.using(unique=Unique(args=True)).enqueue(1).created
    assert sync.holder_id(1) == first.id


def test_holder_is_found_by_its_components() -> None:
    first = sync.enqueue(1)
    assert sync.holder_id(1) == first.id
    assert sync.holder_id(1, full=False) == first.id
    assert sync.holder_id(2) is None
    assert hourly.holder_id() is None
    assert hourly.enqueue().id == hourly.holder_id()
    with pytest.raises(ValueError, match="not unique"):
        plain.holder_id(1)


def test_ended_job_frees_its_key_and_a_completed_one_may_keep_it() -> None:
    keeping = sync.using(unique=Unique(args=True, states="unfinished_or_completed"))
    first, kept = sync.enqueue(1), keeping.enqueue(2)
    run("UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now()")
    assert sync.enqueue(1).created
    assert keeping.enqueue(2).holder_id == kept.id
    assert sync.enqueue(2).holder_id == kept.id
    assert first.id != kept.id
    assert_claims_match()


def test_conflict_may_raise_and_the_transaction_stays_usable() -> None:
    first = strict.enqueue(1)
    with pytest.raises(UniqueConflict, match=f"job {first.id} holds the unique key") as caught:
        strict.enqueue(1)
    assert (caught.value.holder_id, caught.value.constraint) == (first.id, "idx_awa_jobs_unique")
    assert strict.enqueue(2).created


def test_period_is_that_of_run_at_or_of_the_database_clock() -> None:
    at = datetime(2100, 1, 1, 12, 0, tzinfo=UTC)
    first = hourly.using(run_at=at).enqueue()
    assert hourly.using(run_at=at + timedelta(minutes=59)).enqueue().holder_id == first.id
    assert hourly.using(run_at=at + timedelta(minutes=60)).enqueue().created
    now = hourly.enqueue()
    assert now.created
    assert hourly.enqueue().holder_id == now.id
    assert hourly.using(delay=timedelta(hours=1)).enqueue().created
    [(bucket,)] = run("SELECT floor(extract(epoch FROM now()) / 3600)::bigint")
    assert hourly.holder_id() == now.id
    assert bucket == Unique(period=timedelta(hours=1)).bucket(run("SELECT now()")[0][0])


def test_float_outside_the_domain_of_keys_is_refused() -> None:
    with pytest.raises(InvalidJob, match="unique key"):
        plain.using(unique=Unique(args=True)).enqueue(1e300)


def test_statements_of_a_unique_enqueue(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):  # insert, wake
        sync.enqueue(1)
    with django_assert_num_queries(2):  # insert, look-up of the holder
        sync.enqueue(1)
    with django_assert_num_queries(2):  # clock, insert
        hourly.using(delay=60).enqueue()
    with django_assert_num_queries(1):  # run_at says the period
        hourly.using(run_at=datetime(2100, 1, 1, tzinfo=UTC)).enqueue()


def test_holder_that_is_gone_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sync.enqueue(1)
    looks: list[int] = []

    def gone_once(*args: Any) -> dict[bytes, int]:
        looks.append(1)
        run("DELETE FROM awa.jobs_hot WHERE id = %s", first.id)
        return {}

    monkeypatch.setattr(single, "find_unique_holders", gone_once)
    again = sync.enqueue(1)
    assert again.created
    assert again.id != first.id
    assert looks == [1]


def test_holders_that_are_always_gone_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sync.enqueue(1)
    for module in (single, bulk):
        monkeypatch.setattr(module, "find_unique_holders", lambda *args: {})
    with pytest.raises(UniqueConflict) as caught:
        sync.enqueue(1)
    assert caught.value.holder_id is None
    with pytest.raises(UniqueConflict):
        sync.enqueue_many([{"account": 1}])
    assert job_count() == 1


@pytest.mark.fault("F58", injected="a batch with duplicates of each other and of a job that exists")
def test_bulk_names_duplicates_in_the_table_and_in_the_batch() -> None:
    held = sync.enqueue(1)
    answers = sync.enqueue_many(
        [
            {"account": 2},
            {"account": 1},
            {"account": 2, "full": False},
            sync.using(delay=60).item(3),
            sync.item(3),
            sync.using(unique=None).item(1),
        ]
    )
    assert [answer.created for answer in answers] == [True, False, False, True, False, True]
    assert [answer.holder_id for answer in answers] == [
        None,
        held.id,
        answers[0].id,
        None,
        answers[3].id,
        None,
    ]
    assert job_count() == 4
    assert_claims_match()


@pytest.mark.fault("F58", injected="a batch of a kind whose duplicates raise")
def test_bulk_conflict_may_raise_and_then_nothing_is_written() -> None:
    first = strict.enqueue(1)
    with pytest.raises(UniqueConflict) as caught:
        strict.enqueue_many([{"account": 2}, {"account": 1}])
    assert caught.value.holder_id == first.id
    assert job_count() == 1
    assert_claims_match()


def test_bulk_tries_again_what_was_held_by_a_job_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sync.enqueue(1)

    def gone(*args: Any) -> dict[bytes, int]:
        run("DELETE FROM awa.jobs_hot WHERE id = %s", first.id)
        return {}

    monkeypatch.setattr(bulk, "find_unique_holders", gone)
    answers = sync.enqueue_many([{"account": 1}, {"account": 2}])
    assert [answer.created for answer in answers] == [True, True]
    assert_claims_match()


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
        rival = connect(autocommit=False)
        rival.execute(
            RIVAL,
            [key()],
        )
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(in_threads, 1, lambda _: sync.enqueue(1))
            wait_until(lambda: is_blocked(connect()), message="the enqueue waits for its rival")
            rival.rollback()
            [answer] = waiting.result()
        assert answer.created
        assert_claims_match()

    def test_rival_that_commits_is_named(self, connect: Connect) -> None:
        rival = connect(autocommit=False)
        [(rival_id,)] = rival.execute(
            f"{RIVAL} RETURNING id",
            [key()],
        ).fetchall()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                in_threads, 1, lambda _: sync.enqueue_many([{"account": 1}, {"account": 2}])
            )
            wait_until(lambda: is_blocked(connect()), message="the batch waits for its rival")
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
        monkeypatch.setattr(bulk, "CHUNK", 7)
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


def is_blocked(other: Any) -> bool:
    """Whether a session of this test waits for a lock."""
    return bool(
        other.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()[0]
    )
