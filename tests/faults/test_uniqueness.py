"""One holder of a key at each moment: many rivals, large batches, each move of a job, damaged claims."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from awa_django import Enqueued, Unique, doctor, job, operations
from awa_django.states import JobState
from awa_django.storage import finalize, operate
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.promote import promote
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from awa_django.worker.database import Session
from awa_django.worker.promoter import Promoter
from tests.conftest import Connect
from tests.factories import insert_job, reload_job
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database

Postgres = psycopg.Connection[Any]


@job(kind="tests.faults.once", unique=Unique(args=True))
def once(account: int) -> None: ...


def key_of(account: int) -> bytes:
    unique = once.handler.unique
    assert unique is not None
    return unique.key("tests.faults.once", queue="default", args={"account": account}, at=None)


KEY = key_of(1)
UNFINISHED = "11101001"


class Boom(Exception):
    pass


@pytest.mark.parametrize("rivals", [2, 10, 50])
@pytest.mark.fault(
    "F57", injected="2 to 50 sessions enqueue one key at once: commits, rollbacks, savepoints, batches"
)
def test_one_of_up_to_fifty_rivals_holds_the_key(rivals: int, database: Database, observe: Observe) -> None:
    barrier = threading.Barrier(rivals)
    usable = []

    def enqueue(number: int) -> Enqueued | None:
        try:
            barrier.wait(60)
            with transaction.atomic():
                if number % 4 == 1:
                    with transaction.atomic():
                        answer = once.enqueue(account=1)
                elif number % 4 == 2:
                    [_, answer] = once.enqueue_many([{"account": 1000 + number}, {"account": 1}])
                else:
                    answer = once.enqueue(account=1)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")  # the loser's transaction goes on
                usable.append(number)
                if number % 4 == 3:
                    raise Boom
                return answer
        except Boom:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(rivals) as pool:
        answers = [answer for answer in pool.map(enqueue, range(rivals)) if answer is not None]
    winners = [answer for answer in answers if answer.created]
    assert len(winners) == 1
    assert {answer.id for answer in answers} == {winners[0].id}
    assert len(usable) == rivals
    assert database.value("SELECT count(*) FROM awa.jobs_hot WHERE unique_key = %s", KEY) == 1
    observe(f"{rivals}: one created, {len(answers) - 1} told, {rivals - len(answers)} rolled back; no error")


@pytest.mark.fault(
    "F58", injected="a batch of 1,000 with 150 that exist and 150 that are twice in it, in random order"
)
def test_large_batch_with_duplicates_says_which(database: Database, observe: Observe) -> None:
    existing = {number: once.enqueue(account=number).id for number in range(150)}
    accounts = [*range(850), *range(150, 300)]
    random.Random(7).shuffle(accounts)
    answers = once.enqueue_many({"account": account} for account in accounts)
    created: dict[int, int] = {}
    for account, answer in zip(accounts, answers, strict=True):
        if account in existing:
            assert (answer.created, answer.holder_id) == (False, existing[account])
        elif account in created:
            assert (answer.created, answer.holder_id) == (False, created[account])
        else:
            assert answer.created
            created[account] = answer.id
    assert len(created) == 700
    assert database.value("SELECT count(*) FROM awa.jobs") == 850
    assert database.value("SELECT count(*) FROM awa.job_unique_claims") == 850
    observe("700 created, 150 named the job that exists, 150 the one in the batch; 850 jobs, 850 claims")


def lease(job_id: int) -> Attempt:
    return Attempt(job_id, 1)


# A move of the job: its state before, the statement, and whether it holds its key afterwards.
MOVES: dict[str, tuple[str, Callable[[Postgres, int], object], bool]] = {
    "promotion": ("scheduled", lambda on, _: promote(on, batch=10), True),
    "claim": (
        "available",
        lambda on, _: claim(on, ClaimRequest(limits={"default": 5}, total=5, worker="w")),
        True,
    ),
    "retry": (
        "running",
        lambda on, i: finalize.defer(on, [Deferral(lease(i), JobState.RETRYABLE, 60, '{"error": "e"}')]),
        True,
    ),
    "snooze": (
        "running",
        lambda on, i: finalize.defer(on, [Deferral(lease(i), JobState.SCHEDULED, 60, refund=True)]),
        True,
    ),
    "release": ("running", lambda on, i: finalize.release(on, [lease(i)]), True),
    "run now": ("retryable", lambda on, i: operate.run_now(on, [i]), True),
    "completion": ("running", lambda on, i: finalize.complete(on, [Completion(lease(i))]), False),
    "failure": (
        "running",
        lambda on, i: finalize.finish(on, [Ending(lease(i), JobState.FAILED, '{"error": "e"}')]),
        False,
    ),
    "cancel": ("available", lambda on, i: operate.cancel_hot(on, [i], entry="{}"), False),
    "cancel of a deferred one": ("scheduled", lambda on, i: operate.cancel_deferred(on, [i]), False),
    "move by the view": (
        "available",
        lambda on, i: on.execute("UPDATE awa.jobs SET run_at = now() + '1 hour' WHERE id = %s", [i]),
        True,
    ),
}


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.fault("F59", injected="another session takes the key in the middle of each move of its holder")
def test_key_is_never_free_in_the_middle_of_a_move(
    move: str, commit: bool, database: Database, connect: Connect, observe: Observe
) -> None:
    state, run, holds_after = MOVES[move]
    columns = {"run_at": "2020-01-01 00:00+00"} if state in ("scheduled", "retryable") else {}
    job_id = insert_job(state, unique_key=KEY, unique_states=UNFINISHED, kind="tests.faults.once", **columns)
    mover = connect(autocommit=False)
    run(mover, job_id)  # its transaction is open: the row is in the middle of its move

    def rival() -> Enqueued:
        try:
            return once.enqueue(account=1)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rival)
        if not holds_after:
            wait_until(
                lambda: (
                    answer.done()
                    or database.value(
                        "SELECT count(*) FROM pg_locks "
                        "WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))",
                        mover.info.backend_pid,
                    )
                ),
                message="the rival waits for the move",
            )
            assert not answer.done()
        else:
            answer.result(60)
            assert not answer.result().created
        (mover.commit if commit else mover.rollback)()
        enqueued = answer.result(60)
    if holds_after or not commit:
        assert (enqueued.created, enqueued.holder_id) == (False, job_id)
    else:
        assert enqueued.created
    holders = database.rows("SELECT job_id FROM awa.job_unique_claims")
    assert holders == [(enqueued.id,)]
    how = "answered at once with the holder" if holds_after else "waited for the end of the move"
    observe(f"{move}: {how}")


@pytest.mark.fault(
    "F61", injected="admin retry of 50 jobs by one action, 20 of whose keys are held by newer jobs"
)
def test_retry_refuses_each_job_whose_key_is_held(database: Database, observe: Observe) -> None:
    ended = [
        insert_job("failed", unique_key=key_of(number), unique_states=UNFINISHED, kind="tests.faults.once")
        for number in range(50)
    ]
    holders = {ended[number]: once.enqueue(account=number).id for number in range(0, 40, 2)}
    result = operations.retry(ended)
    assert set(result.changed) == set(ended) - holders.keys()
    assert {refusal.job_id: refusal.reason for refusal in result.refused} == {
        job_id: f"its unique key is held by job {holder}" for job_id, holder in holders.items()
    }
    observe(f"{len(result.changed)} retried, {len(result.refused)} refused, each naming the holder")


def findings() -> dict[str, tuple[str, ...]]:
    return {found.name: found.examples for found in doctor.diagnose() if not found.is_warning}


@pytest.mark.fault("F63", injected="a claim of a job that does not exist; the claim of a living job deleted")
def test_damaged_claims_are_found_mended_and_do_not_hang_the_engine(
    database: Database, connect: Connect, observe: Observe
) -> None:
    database.connection.execute("INSERT INTO awa.job_unique_claims VALUES (%s, 999999999)", [KEY])
    holder = once.enqueue(account=2).id
    database.connection.execute("DELETE FROM awa.job_unique_claims WHERE job_id = %s", [holder])
    assert findings().keys() == {"claims_without_job", "keys_not_claimed"}

    started = time.monotonic()
    orphaned = once.enqueue(account=1)
    assert (orphaned.created, orphaned.holder_id) == (False, 999999999)  # said, not looped over
    [claimed] = claim(connect(), ClaimRequest(limits={"default": 5}, total=5, worker="w"))
    assert finalize.complete(connect(), [Completion(claimed.key)]) == {holder}
    took = time.monotonic() - started
    assert took < 20

    # What the doctor advises.
    twin = once.enqueue(account=2).id
    database.connection.execute("DELETE FROM awa.job_unique_claims WHERE job_id = %s", [twin])
    database.connection.execute(
        "DELETE FROM awa.job_unique_claims AS claim WHERE NOT EXISTS "
        "(SELECT FROM awa.jobs AS job WHERE job.id = claim.job_id)"
    )
    database.connection.execute(
        "INSERT INTO awa.job_unique_claims SELECT unique_key, id FROM awa.jobs_hot WHERE id = %s", [twin]
    )
    assert findings() == {}
    assert once.enqueue(account=1).created
    assert not once.enqueue(account=2).created
    observe("both found; enqueue, claim and completion go on; mended by the doctor's advice")


@pytest.mark.fault("F64", injected="two transactions take two keys in opposite orders, one enqueue at a time")
def test_opposite_orders_cost_one_producer_its_transaction(
    database: Database, connect: Connect, observe: Observe
) -> None:
    barrier = threading.Barrier(2)

    def enqueue(first: int, second: int) -> str:
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
                once.enqueue(account=first)
                barrier.wait(60)
                once.enqueue(account=second)
            return "committed"
        except Exception as exc:  # noqa: BLE001
            with connection.cursor() as cursor:  # it counts now, and not in a test that counts deadlocks
                cursor.execute("SELECT pg_stat_force_next_flush()")
            return str(getattr(exc.__cause__, "sqlstate", None) or exc)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(enqueue, (1, 2), (2, 1)))
    assert ends == ["40P01", "committed"]
    assert database.states() == {"available": 2}
    observe("one commits, the other gets 40P01 once and can be tried again; batches sort their keys")


@pytest.mark.fault(
    "U34", injected="by SQL: the mask {available, running}, its twin enqueued at each step, and a failure"
)
def test_free_mask_by_sql_is_survived(database: Database, connect: Connect, observe: Observe) -> None:
    mask = "01100000"
    first = insert_job("running", unique_key=KEY, unique_states=mask, worker="w")
    engine = connect()
    finalize.defer(engine, [Deferral(lease(first), JobState.RETRYABLE, 0, '{"error": "e"}')])
    twin = insert_job(unique_key=KEY, unique_states=mask)
    session = Session("awa-test-promoter")
    try:
        Promoter(session, AtWill(session), interval=timedelta(seconds=1), worker="leader").tick()
    finally:
        session.close()
    ended = reload_job(first)
    assert (ended.state, ended.errors[-1]["outcome"]) == ("cancelled", "superseded")
    assert reload_job(twin).state == "available"
    observe("the older one ends as cancelled, superseded by its twin; the twin goes on")
