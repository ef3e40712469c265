"""What becomes of the job that holds a key when another one wants it: replaced, rescheduled, or left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from awa_django import Enqueued, InvalidJob, Unique, UniqueConflict
from awa_django.enqueue import single
from awa_django.states import JobState
from awa_django.storage import finalize, operate
from awa_django.storage._sql import statement
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.promote import promote
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Deferral
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.sessions import is_blocked
from tests.unique_jobs import assert_claims_match, debounced, job_count, latest, run
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

DAY, TOMORROW = timedelta(days=1), timedelta(days=2)
UNFINISHED = "11101001"
rescheduled = latest.using(unique=Unique(args=("account",), on_conflict="reschedule"))


def hold(state: str, **columns: Any) -> int:
    """A job of ``latest`` in this state that holds the key of account 1."""
    unique = latest.handler.unique
    assert unique is not None
    key = unique.key(latest.handler.kind, queue="default", args={"account": 1}, at=None)
    mask = Unique(states="kept").mask
    values = {"kind": latest.handler.kind, "args": {"account": 1, "page": 1}, "priority": 3, **columns}
    return insert_job(state, unique_key=key, unique_states=mask, **values)


WAITING = ("available", "scheduled", "retryable")
LEFT = ("running", "waiting_external", "completed", "failed", "cancelled")


@pytest.mark.parametrize("state", WAITING)
def test_replace_gives_a_waiting_holder_the_new_arguments(state: str) -> None:
    holder = hold(state)
    before = reload_job(holder)
    answer = latest.using(delay=DAY, priority=1).enqueue(1, page=2)
    assert answer == Enqueued(holder, False, holder, updated=True, holder_state=JobState(state))
    after = reload_job(holder)
    assert after.args == {"account": 1, "page": 2}
    assert {**vars(after), "args": before.args} == vars(before)
    assert job_count() == 1
    assert_claims_match()


@pytest.mark.parametrize("state", LEFT)
@pytest.mark.parametrize("policy", ["replace", "reschedule", "replace_and_reschedule"])
def test_holder_that_runs_or_has_ended_is_left_and_the_answer_says_so(state: str, policy: Any) -> None:
    holder = hold(state)
    before = reload_job(holder)
    job = latest.using(unique=Unique(args=("account",), on_conflict=policy), delay=DAY)
    answer = job.enqueue(1, page=2)
    assert answer == Enqueued(holder, False, holder, updated=False, holder_state=JobState(state))
    assert reload_job(holder) == before
    assert job_count() == 1


@pytest.mark.parametrize("state", ["scheduled", "retryable"])
def test_reschedule_changes_when_a_deferred_holder_is_due_and_nothing_else(state: str) -> None:
    holder = hold(state)
    before, run_at = reload_job(holder), timezone.now() + DAY
    answer = rescheduled.using(run_at=run_at).enqueue(1, page=2)
    assert (answer.id, answer.updated, answer.holder_state) == (holder, True, state)
    after = reload_job(holder)
    assert after.run_at == run_at
    assert {**vars(after), "run_at": before.run_at} == vars(before)


def test_reschedule_moves_an_available_holder_with_every_column() -> None:
    holder = hold(
        "available", errors=[{"error": "first"}], metadata={"m": 1}, tags=["x"], attempt=1, run_lease=4,
        progress={"percent": 10}, worker="w", max_attempts=7,
    )  # fmt: skip
    before, run_at = reload_job(holder), timezone.now() + DAY
    assert rescheduled.using(run_at=run_at).enqueue(1, page=2).updated
    after = reload_job(holder)
    assert (after.table, after.state, after.run_at) == ("awa.scheduled_jobs", "scheduled", run_at)
    same = {"table": before.table, "state": before.state, "run_at": before.run_at}
    assert {**vars(after), **same} == vars(before)
    assert_claims_match()


def test_deferred_holder_may_become_due_at_once() -> None:
    holder = hold("scheduled")
    assert rescheduled.enqueue(1).updated
    assert promote(connection, batch=10) == {"default": 1}
    assert reload_job(holder).state == "available"


def test_available_holder_keeps_its_place_when_it_is_asked_to_be_due_at_once() -> None:
    """Else a job that is enqueued again and again would never come to the head of a long queue."""
    holder = hold("available", run_at="2024-01-01 00:00+00")
    before = reload_job(holder)
    answer = rescheduled.enqueue(1)
    assert answer == Enqueued(holder, False, holder, updated=False, holder_state=JobState.AVAILABLE)
    assert reload_job(holder) == before
    assert debounced_of_latest().enqueue(1, page=5).updated
    assert (reload_job(holder).args["page"], reload_job(holder).run_at) == (5, before.run_at)


def test_available_holder_may_be_put_off_with_new_arguments() -> None:
    holder = hold("available")
    assert debounced_of_latest().using(delay=DAY).enqueue(1, page=7).updated
    after = reload_job(holder)
    assert (after.table, after.args["page"], job_count()) == ("awa.scheduled_jobs", 7, 1)


def debounced_of_latest() -> Any:
    return latest.using(unique=Unique(args=("account",), on_conflict="replace_and_reschedule"))


def test_debounced_job_runs_once_with_the_last_arguments_after_the_last_call() -> None:
    first = debounced.using(delay=60).enqueue(1, page=1)
    again = debounced.using(delay=120).enqueue(1, page=2)
    assert (again.id, again.updated) == (first.id, True)
    job = reload_job(first.id)
    [(wait,)] = run("SELECT %s::timestamptz - now()", job.run_at)
    assert (job.args, wait) == ({"account": 1, "page": 2}, timedelta(seconds=120))
    assert job_count() == 1
    assert_claims_match()


def test_new_job_is_made_where_the_key_is_free() -> None:
    assert latest.enqueue(1) == Enqueued(latest.holder_id(1) or 0)
    assert latest.enqueue(2).created


def test_statements_of_a_conflict(django_assert_num_queries: Any) -> None:
    latest.enqueue(1)
    with django_assert_num_queries(2):  # insert, change
        latest.enqueue(1, page=2)


def test_claim_of_no_job_is_answered_and_not_looped_over() -> None:
    holder = hold("available")
    run("ALTER TABLE awa.jobs_hot DISABLE TRIGGER unique_claim_delete")
    run("DELETE FROM awa.jobs_hot")
    assert latest.enqueue(1) == Enqueued(holder, False, holder)


def test_batch_refuses_what_would_change_holders() -> None:
    with pytest.raises(InvalidJob, match=r"item 1 of the batch: on_conflict='replace' .* one by one"):
        latest.enqueue_many([latest.using(unique=None).item(1), {"account": 1}])
    assert job_count() == 0


def test_holder_that_always_moves_on_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hold("available")
    monkeypatch.setattr(single, "change_holder", lambda *args, **options: None)
    with pytest.raises(UniqueConflict):
        latest.enqueue(1)
    assert job_count() == 1


def test_move_names_every_column_of_the_tables() -> None:
    columns = [name for (name,) in run("SELECT attname FROM pg_attribute "
        "WHERE attrelid = 'awa.jobs_hot'::regclass AND attnum > 0 ORDER BY attnum")]  # fmt: skip
    inserted = statement("change_holder").split("INSERT INTO")[1].split("(", 1)[1].split(")")[0]
    assert [column.strip() for column in inserted.split(",")] == columns


def one_claim(on: Any, _: int) -> list[ClaimedJob]:
    return claim(on, ClaimRequest(limits={"default": 5}, total=5, worker="w"))


# A move under way when the key is wanted: the holder's state before, the move, and what comes of it.
MOVES: dict[str, tuple[str, Callable[[Any, int], object], str | None]] = {
    "claim": ("available", one_claim, "running"),
    "promotion": ("scheduled", lambda on, _: promote(on, batch=10), "available"),
    "completion": ("running", lambda on, i: finalize.complete(on, [Completion(Attempt(i, 1))]), "completed"),
    "retry": (
        "running",
        lambda on, i: finalize.defer(on, [Deferral(Attempt(i, 1), JobState.RETRYABLE, 60, '{"e": 1}')]),
        None,  # while it was open the row ran
    ),
    "cancel": ("available", lambda on, i: operate.cancel_hot(on, [i], entry="{}"), "cancelled"),
    "cancel of a deferred one": ("scheduled", lambda on, i: operate.cancel_deferred(on, [i]), "cancelled"),
    "deletion": ("available", lambda on, i: operate.delete_hot(on, [i]), None),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
class TestRaces:
    @pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
    @pytest.mark.parametrize("move", MOVES)
    @pytest.mark.parametrize("puts_off", [False, True], ids=["replaced", "put off"])
    def test_holder_in_the_middle_of_a_move_is_changed_where_it_comes_to_wait(
        self, move: str, commit: bool, puts_off: bool, connect: Connect
    ) -> None:
        state, change, then = MOVES[move]
        job = debounced_of_latest().using(delay=DAY) if puts_off else latest
        holder = hold(state)
        if state == "scheduled":
            update_job(holder, run_at="now() - interval '1 second'")
        mover, observer = connect(autocommit=False), connect()
        change(mover, holder)
        usable: list[int] = []

        def rival() -> Enqueued:
            try:
                with transaction.atomic():
                    answer = job.enqueue(1, page=2)
                    usable.append(run("SELECT 1")[0][0])
                return answer
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            answering = pool.submit(rival)
            if state != "running":
                wait_until(lambda: answering.done() or is_blocked(observer), message="the rival waits")
                assert not answering.done()
            else:  # a run is left alone, and not waited for
                assert answering.result(60).holder_state == "running"
            (mover.commit if commit else mover.rollback)()
            answer = answering.result(60)
        assert usable == [1]
        if not commit and state != "running":
            assert (answer.id, answer.updated, answer.holder_state) == (holder, True, state)
        elif move == "deletion":
            assert answer.created
        elif state == "running":
            assert not answer.updated
        else:
            assert (answer.id, answer.updated, answer.holder_state) == (holder, then == "available", then)
        if answer.updated:
            assert reload_job(holder).args["page"] == 2
            assert not puts_off or reload_job(holder).table == "awa.scheduled_jobs"
        assert_claims_match()

    def test_rivals_leave_one_job_with_the_arguments_of_one_of_them(self, connect: Connect) -> None:
        """And with the claims and completions of workers beside them nothing deadlocks."""
        stop = threading.Event()
        answers: list[Enqueued] = []
        errors: list[BaseException] = []

        def produce(number: int) -> None:
            try:
                for page in range(25):
                    answers.append(debounced.using(delay=page % 2 * 0.001).enqueue(1, page=page))
            except BaseException as exc:  # noqa: BLE001
                errors.append(exc)
            finally:
                connection.close()

        session = connect()

        def work() -> None:
            while not stop.is_set():
                promote(session, batch=10)
                for job in one_claim(session, 0):
                    finalize.complete(session, [Completion(job.key)])

        worker = threading.Thread(target=work)
        worker.start()
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(produce, range(4)))
        finally:
            stop.set()
            worker.join(30)
        assert errors == []
        assert len(answers) == 100
        created = [answer.id for answer in answers if answer.created]
        assert job_count() == len(created) == len(set(created))
        assert {answer.id for answer in answers} == set(created)
        assert_claims_match()

    def test_stricter_isolation_ends_in_a_unique_conflict(self, connect: Connect) -> None:
        holder = hold("available")
        with pytest.raises(UniqueConflict), transaction.atomic():  # noqa: PT012
            run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            run("SELECT 1")
            connect().execute("UPDATE awa.jobs_hot SET priority = 4 WHERE id = %s", [holder])
            latest.enqueue(1, page=2)
        assert reload_job(holder).args["page"] == 1
