"""The testing kit, as a user's own tests use it: inside a plain TestCase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import TestCase
from django.utils import timezone

from awa_django import (
    AwaError,
    Cancel,
    Fixed,
    InvalidJob,
    JobContext,
    JobNotFound,
    RetryAfter,
    Snooze,
    TerminalError,
    UnknownJobKind,
    job,
    registry,
)
from awa_django.doctor import diagnose
from awa_django.operations import pause_queue
from awa_django.testing import (
    Run,
    assert_enqueued,
    drain,
    enqueued_jobs,
    flush_queue,
    refute_enqueued,
    run_job,
)
from tests.conftest import Connect
from tests.factories import insert_job, reload_job


@dataclass
class Order:
    number: int
    placed_at: datetime


def send(order_id: int, to: str = "nobody") -> None:
    Group.objects.create(name=f"sent {order_id} to {to}")


def ship(order: Order) -> None:
    Group.objects.create(name=f"shipped {order.number}")


def chain(left: int) -> None:
    if left:
        CHAIN.enqueue(left=left - 1)


def end(context: JobContext, how: str) -> Any:  # noqa: C901  (one arm for each way to end)
    Group.objects.create(name=f"{how} {context.run_lease}")
    match how:
        case "snooze" if context.checkpoint is None:
            context.progress(50, "halfway", checkpoint=1)
            return Snooze(3600)
        case "retry after":
            return RetryAfter(60, "busy")
        case "cancel":
            return Cancel("not wanted")
        case "raise":
            raise ValueError("it never works")
        case "terminal":
            raise TerminalError("no use")
        case "exit":
            raise SystemExit(3)
        case "break the transaction":
            Group.objects.create(name=f"{how} {context.run_lease}")
        case "break it by hand":
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        case "durable":
            with transaction.atomic(durable=True):
                Group.objects.create(name=f"inside {how}")
        case "catch the break":
            try:
                with transaction.atomic():
                    Group.objects.create(name=f"{how} {context.run_lease}")
            except IntegrityError:
                pass
        case "cancel itself":
            with connection.cursor() as cursor:
                cursor.execute("UPDATE awa.jobs SET state = 'cancelled' WHERE id = %s", [context.job_id])
    return how


async def send_async(name: str) -> str:
    await Group.objects.acreate(name=name)
    return name


def atomic(fail: bool) -> None:
    Group.objects.create(name="atomic")
    if fail:
        raise ValueError("rolled back")


SEND = job(kind="kit.send", queue="mail", aliases=("kit.old_send",))(send)
SHIP = job(kind="kit.ship")(ship)
CHAIN = job(kind="kit.chain")(chain)
END = job(kind="kit.end", takes_context=True, max_attempts=2, retry=Fixed(wait=60), keep_result=True)(end)
SEND_ASYNC = job(kind="kit.send_async", keep_result=True)(send_async)
ATOMIC = job(kind="kit.atomic", atomic=True, max_attempts=1)(atomic)
JOBS = (SEND, SHIP, CHAIN, END, SEND_ASYNC, ATOMIC)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Another test may have emptied the registry."""
    for each in JOBS:
        registry.register(each.handler)
    yield
    for each in JOBS:
        registry.unregister(each.handler)


def names() -> list[str]:
    return list(Group.objects.order_by("id").values_list("name", flat=True))


def one(runs: list[Run]) -> Run:
    [run] = runs
    return run


class AssertionsTest(TestCase):
    def test_enqueued_jobs_are_narrowed(self) -> None:
        SEND.enqueue(1)
        SEND.using(queue="slow", delay=60).enqueue(2)
        SHIP.enqueue(Order(3, datetime(2026, 1, 1, tzinfo=UTC)))
        assert [each.kind for each in enqueued_jobs()] == ["kit.send", "kit.send", "kit.ship"]
        assert [each.args["order_id"] for each in enqueued_jobs(SEND)] == [1, 2]
        assert [each.args["order_id"] for each in enqueued_jobs("kit.send", queue="slow")] == [2]
        assert [each.args["order_id"] for each in enqueued_jobs(SEND, state="available")] == [1]

    def test_assert_enqueued_compares_typed_arguments(self) -> None:
        order = Order(3, datetime(2026, 1, 1, tzinfo=UTC))
        SHIP.enqueue(order=order)
        [found] = assert_enqueued(SHIP, {"order": order})
        assert found.state == "available"
        refute_enqueued(SHIP, {"order": Order(4, order.placed_at)})

    def test_assert_enqueued_fills_defaults(self) -> None:
        SEND.enqueue(1)
        SEND.enqueue(2, to="nobody")
        assert_enqueued(SEND, {"order_id": 1, "to": "nobody"})
        assert_enqueued(SEND, {"order_id": 2})
        refute_enqueued(SEND, {"order_id": 1, "to": "ann"})

    def test_assert_enqueued_by_kind_compares_the_stored_json(self) -> None:
        insert_job(kind="other.language", args={"n": 1})
        assert_enqueued("other.language", {"n": 1}, queue="default", state="available")
        refute_enqueued("other.language", {"n": 2})

    def test_assert_enqueued_knows_aliases(self) -> None:
        insert_job(kind="kit.old_send", args={"order_id": 1})
        assert_enqueued(SEND, {"order_id": 1})

    def test_assert_enqueued_looks_at_queue_and_run_at(self) -> None:
        tomorrow = timezone.now() + timedelta(days=1)
        SEND.using(run_at=tomorrow).enqueue(1)
        assert_enqueued(SEND, queue="mail", run_at=tomorrow, state="scheduled")
        refute_enqueued(SEND, queue="default")
        refute_enqueued(SEND, run_at=tomorrow + timedelta(seconds=1))

    def test_assert_enqueued_counts(self) -> None:
        SEND.enqueue(1)
        SEND.enqueue(1)
        assert_enqueued(SEND, count=2)
        assert_enqueued(SEND, count=None)
        with pytest.raises(AssertionError, match=r"2 jobs enqueued, not 1: kit\.send"):
            assert_enqueued(SEND)
        with pytest.raises(AssertionError, match=r"0 jobs enqueued, not at least 1: kit\.ship"):
            assert_enqueued(SHIP, count=None)

    def test_failed_assertion_names_the_jobs_there_are(self) -> None:
        SEND.enqueue(7)
        with pytest.raises(
            AssertionError, match=r"args=\{'order_id': 8\}\nThe jobs of this kind:\n.*'order_id': 7"
        ):
            assert_enqueued(SEND, {"order_id": 8})
        with pytest.raises(AssertionError, match="There is no job of this kind"):
            assert_enqueued(SHIP)
        with pytest.raises(AssertionError, match="1 jobs enqueued, not 0"):
            refute_enqueued(SEND)

    def test_failed_assertion_names_not_all_of_many(self) -> None:
        SEND.enqueue_many([{"order_id": number} for number in range(25)])
        with pytest.raises(AssertionError, match="and 5 more"):
            assert_enqueued(SEND, {"order_id": 99})

    def test_arguments_that_do_not_fit_are_an_error(self) -> None:
        with pytest.raises(InvalidJob):
            assert_enqueued(SEND, {"order": 1})


class DrainTest(TestCase):
    @pytest.mark.fault(
        "U30", injected="a TestCase enqueues and asserts the effect, without a commit or a thread"
    )
    def test_drain_runs_what_is_due_best_first(self) -> None:
        last = SEND.using(priority=4).enqueue(1).id
        first = SEND.using(priority=1).enqueue(2).id
        SEND.using(delay=60).enqueue(3)
        assert [run.id for run in drain()] == [first, last]
        assert names() == ["sent 2 to nobody", "sent 1 to nobody"]
        assert {each.state for each in enqueued_jobs()} == {"completed", "scheduled"}
        assert drain() == []

    def test_drain_restores_typed_arguments(self) -> None:
        SHIP.enqueue(Order(3, datetime(2026, 1, 1, tzinfo=UTC)))
        assert one(drain()).outcome == "completed"
        assert names() == ["shipped 3"]

    @pytest.mark.fault("F79", injected="drain inside a TestCase, without a commit")
    def test_drain_runs_what_handlers_enqueue(self) -> None:
        CHAIN.enqueue(left=3)
        assert len(drain()) == 4

    def test_drain_is_bounded(self) -> None:
        CHAIN.enqueue(left=50)
        with pytest.raises(AssertionError, match="10 jobs have run and there are more"):
            drain(max_jobs=10)
        assert [each.attempt for each in enqueued_jobs(state="available")] == [0]

    def test_name_that_no_queue_can_have_is_refused(self) -> None:
        with pytest.raises(InvalidJob, match="queue"):
            drain("a\0b")

    def test_drain_of_one_queue_leaves_the_others(self) -> None:
        SEND.enqueue(1)
        CHAIN.enqueue(0)
        SEND.using(delay=60).enqueue(2)
        CHAIN.using(delay=60).enqueue(0)
        assert [run.kind for run in drain("mail", include_deferred=True)] == ["kit.send", "kit.send"]
        assert [each.kind for each in enqueued_jobs(state="available")] == ["kit.chain"]

    def test_drain_leaves_a_paused_queue(self) -> None:
        SEND.enqueue(1)
        pause_queue("mail")
        assert drain() == []

    def test_job_scheduled_for_this_moment_is_due(self) -> None:
        SEND.using(run_at=timezone.now()).enqueue(1)
        assert len(drain()) == 1

    def test_deferred_jobs_run_when_asked_for_earliest_first(self) -> None:
        SEND.using(delay=7200).enqueue(2)
        SEND.using(delay=3600).enqueue(1)
        assert len(drain(include_deferred=True)) == 2
        assert names() == ["sent 1 to nobody", "sent 2 to nobody"]

    def test_failing_job_is_retried_when_deferred_jobs_are_asked_for(self) -> None:
        job_id = END.enqueue("raise").id
        run = one(drain())
        assert (run.outcome, run.error) == ("retried", "it never works")
        assert run.traceback is not None
        assert "ValueError" in run.traceback
        assert reload_job(job_id).state == "retryable"
        assert one(drain(include_deferred=True)).outcome == "failed"
        assert len(reload_job(job_id).errors) == 2
        assert names() == ["raise 1", "raise 2"]  # as in production: nothing rolls them back

    def test_each_end_has_its_outcome(self) -> None:
        for how, outcome in {
            "snooze": "snoozed",
            "retry after": "retried",
            "cancel": "cancelled",
            "terminal": "failed",
            "exit": "retried",
            "well": "completed",
            "cancel itself": "stale",
            "break the transaction": "retried",
            "break it by hand": "retried",
            "catch the break": "completed",
            "durable": "completed",
        }.items():
            END.enqueue(how)
            assert one(drain()).outcome == outcome, how
        assert [finding for finding in diagnose() if not finding.is_warning] == []

    def test_snoozed_job_goes_on_from_its_checkpoint(self) -> None:
        job_id = END.enqueue("snooze").id
        assert [run.outcome for run in drain(include_deferred=True)] == ["snoozed", "completed"]
        assert END.get(job_id).attempt == 1
        assert END.get(job_id).result == "snooze"

    def test_handler_that_breaks_its_transaction_leaves_that_of_the_test(self) -> None:
        Group.objects.create(name="of the test")
        END.enqueue("break the transaction")
        run = one(drain())
        assert "duplicate key" in str(run.error)
        assert names() == ["of the test"]

    def test_async_handler_sees_the_rows_of_the_test(self) -> None:
        job_id = SEND_ASYNC.enqueue(name="async").id
        assert one(drain()).outcome == "completed"
        assert SEND_ASYNC.get(job_id).result == "async"
        assert names() == ["async"]

    def test_atomic_handler_completes_in_its_transaction(self) -> None:
        ATOMIC.enqueue(fail=False)
        ATOMIC.enqueue(fail=True)
        assert [run.outcome for run in drain()] == ["completed", "failed"]
        assert names() == ["atomic"]

    def test_unknown_kind_is_loud_and_stays_available(self) -> None:
        job_id = insert_job(kind="nobody.knows")
        with pytest.raises(UnknownJobKind, match=r"nobody\.knows"):
            drain()
        found = reload_job(job_id)
        assert (found.state, found.attempt) == ("available", 0)

    def test_used_up_job_is_failed_unstarted(self) -> None:
        insert_job(kind="kit.send", args={"order_id": 1}, attempt=3, max_attempts=3)
        run = one(drain())
        assert run.outcome == "failed"
        assert "used up" in str(run.error)
        assert names() == []


class RunJobTest(TestCase):
    def test_run_job_runs_this_one_only(self) -> None:
        SEND.enqueue(1)
        wanted = SEND.enqueue(2).id
        assert run_job(wanted).outcome == "completed"
        assert names() == ["sent 2 to nobody"]

    def test_run_job_does_not_wait_for_run_at(self) -> None:
        assert run_job(SEND.using(delay=timedelta(days=365)).enqueue(1).id).outcome == "completed"

    def test_job_that_does_not_wait_is_refused(self) -> None:
        job_id = SEND.enqueue(1).id
        run_job(job_id)
        with pytest.raises(AwaError, match="it is completed"):
            run_job(job_id)

    def test_missing_job_is_named(self) -> None:
        with pytest.raises(JobNotFound, match="999999999"):
            run_job(999_999_999)


@pytest.mark.usefixtures("clean_queue")
def test_drain_works_on_committed_jobs_too(connect: Connect) -> None:
    SEND.enqueue(1)
    END.enqueue("break the transaction")
    assert sorted(run.outcome for run in drain()) == ["completed", "retried"]
    states = connect().execute("SELECT state::text FROM awa.jobs ORDER BY id").fetchall()
    assert states == [("completed",), ("retryable",)]


@pytest.mark.usefixtures("clean_queue")
@pytest.mark.fault("F79", injected="the flush of a TransactionTestCase")
def test_flush_queue_empties_every_table(connect: Connect) -> None:
    insert_job(unique_key=b"f" * 16, unique_states="11101001")
    insert_job("scheduled")
    pause_queue("mail")
    session = connect()
    session.execute("UPDATE awa.leaders SET holder = 'test', expires_at = now()")
    flush_queue()
    tables = session.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'awa' "
        "AND tablename NOT IN ('schema_version', 'leaders')"
    ).fetchall()
    assert len(tables) >= 9
    for (table,) in tables:
        assert session.execute(f"SELECT count(*) FROM awa.{table}").fetchone() == (0,), table
    assert session.execute("SELECT DISTINCT holder FROM awa.leaders").fetchall() == [(None,)]
    assert [finding for finding in diagnose() if not finding.is_warning] == []
