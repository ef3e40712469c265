"""Executor: what may run at once, in which order it starts, and that every job's end is handed over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.db import transaction

from awa_django.codec import JSON
from awa_django.context import JobContext
from awa_django.jobs import job
from awa_django.states import JobState
from awa_django.storage.rows import ClaimedJob, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker import attempt, holdings
from awa_django.worker import executor as module
from awa_django.worker.executor import Executor
from awa_django.worker.holdings import HeldJob, Holdings, slot_count
from awa_django.worker.options import WorkerOptions
from awa_django.worker.slots import Phase, SlotTable
from tests.waiting import wait_until

LONG_AGO = float("inf")
# Seconds that a job may be held here before it starts: no machine stands still for so long.
LONGEST_HOLD = 600.0


class Bench:
    """An executor whose outcomes are collected here, and handlers that wait until they are let go."""

    def __init__(self, queues: Mapping[str, int], concurrency: int, threads: int) -> None:
        self.table = SlotTable.create(slot_count(concurrency))
        self.reader = self.table.reader()
        writer = self.table.writer()
        self.holdings = Holdings(queues, concurrency, writer)
        options = WorkerOptions(queues=queues, concurrency=concurrency, threads=threads)
        self.was_empty = 0
        self.executor = Executor(
            options=options, worker="w/1", slots=writer, sink=self, on_empty=self._on_empty
        )
        self.outcomes: dict[int, Outcome | None] = {}
        self.reports: list[dict[str, JSON]] = []
        self.running: list[int] = []
        self.started: list[int] = []
        self.go = threading.Event()
        self._next_id = 0

    def _on_empty(self) -> None:
        self.was_empty += 1

    def put(self, held: HeldJob, outcome: Outcome | None) -> None:
        self.outcomes[held.job.id] = outcome

    def report(self, held: HeldJob, progress: dict[str, JSON]) -> None:
        self.reports.append(progress)

    def hold(self, kind: str, queue: str = "default", **columns: Any) -> HeldJob:
        self._next_id += 1
        values = {
            "attempt": 1,
            "max_attempts": 3,
            "metadata": None,
            "progress": None,
            "args": "{}",
            **columns,
        }
        given = ClaimedJob(id=self._next_id, run_lease=1, kind=kind, queue=queue, **values)
        return self.holdings.take([given])[0]

    def submit(self, kind: str, count: int = 1, queue: str = "default", **columns: Any) -> list[int]:
        held = [
            self.hold(kind, queue, args=f'{{"number": {self._next_id + 1}}}', **columns) for _ in range(count)
        ]
        self.executor.submit(held)
        return [each.job.id for each in held]

    def let_go(self, count: int) -> None:
        self.go.set()
        wait_until(lambda: len(self.outcomes) == count)


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, registered: None) -> Iterator[Callable[..., Bench]]:
    """``make_bench(queues, concurrency=..., threads=...)`` makes a bench, and the kinds that wait on it."""
    monkeypatch.setattr(holdings, "LONGEST_HOLD", LONGEST_HOLD)
    benches: list[Bench] = []

    def make(queues: Mapping[str, int] | None = None, concurrency: int = 8, threads: int = 8) -> Bench:
        bench = Bench(queues or {"default": 8}, concurrency, threads)
        benches.append(bench)
        bench.executor.start()

        @job(kind="t.wait")
        def wait(number: int) -> None:
            bench.started.append(number)
            bench.running.append(number)
            bench.go.wait(100)
            bench.running.remove(number)

        @job(kind="t.wait_async")
        async def wait_async(number: int) -> None:
            bench.started.append(number)
            bench.running.append(number)
            while not bench.go.is_set():  # noqa: ASYNC110  (a thread sets it)
                await asyncio.sleep(0.005)
            bench.running.remove(number)

        return bench

    yield make
    for bench in benches:
        bench.go.set()
        bench.executor.stop()
        wait_until(lambda bench=bench: not any(thread.is_alive() for thread in bench.executor._threads))  # type: ignore[misc]


def settle_down(bench: Bench, expected: int) -> None:
    """Until so many run, and a moment longer to see that no more do."""
    wait_until(lambda: len(bench.running) >= expected)
    time.sleep(0.05)
    assert len(bench.running) == expected


@pytest.mark.parametrize("kind", ["t.wait", "t.wait_async"])
def test_concurrency_bounds_what_runs(make_bench: Callable[..., Bench], kind: str) -> None:
    bench = make_bench({"default": 8, "mail": 8}, concurrency=3)
    ids = bench.submit(kind, 4) + bench.submit(kind, 3, queue="mail")
    settle_down(bench, 3)
    bench.let_go(7)
    assert set(bench.outcomes) == set(ids)
    assert all(isinstance(outcome, Completion) for outcome in bench.outcomes.values())


def test_def_and_async_handlers_count_together(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=3)
    bench.submit("t.wait", 2)
    bench.submit("t.wait_async", 4)
    settle_down(bench, 3)
    bench.let_go(6)


@pytest.mark.parametrize("kind", ["t.wait", "t.wait_async"])
def test_limit_of_a_queue_bounds_what_runs_of_it(make_bench: Callable[..., Bench], kind: str) -> None:
    """``--queues mail:1`` promises one at a time, however many are held ahead."""
    bench = make_bench({"mail": 1, "default": 8})
    mail = bench.submit(kind, 5, queue="mail")
    settle_down(bench, 1)
    default = bench.submit(kind, 3)
    settle_down(bench, 4)
    assert set(bench.running) == {mail[0], *default}
    bench.let_go(8)
    assert [number for number in bench.started if number in mail] == mail


def test_threads_bound_def_handlers_only(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(threads=2)
    bench.submit("t.wait", 4)
    settle_down(bench, 2)
    bench.submit("t.wait_async", 4)
    settle_down(bench, 6)
    bench.let_go(8)


def test_what_waits_starts_when_something_ends(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=1)
    ids = [bench.submit(kind)[0] for kind in ("t.wait", "t.wait_async", "t.wait", "t.wait_async")]
    settle_down(bench, 1)
    bench.let_go(4)
    assert sorted(bench.started) == ids


@pytest.mark.parametrize("kind", ["t.wait", "t.wait_async"])
def test_limits_hold_after_jobs_have_taken_each_others_place(
    make_bench: Callable[..., Bench], kind: str
) -> None:
    bench = make_bench({"one": 2, "two": 3}, concurrency=4)
    for round_ in range(1, 4):  # the only lane, both lanes, and one after the other
        bench.submit(kind, 20, queue="one")
        if round_ > 1:
            bench.submit(kind, 20, queue="two")
        bench.let_go(20 if round_ == 1 else 40 * round_ - 20)
        wait_until(lambda: not bench.running)
        bench.go.clear()
    bench.submit(kind, 5, queue="one")
    settle_down(bench, 2)
    bench.submit(kind, 5, queue="two")
    settle_down(bench, 4)
    bench.let_go(110)


def test_who_claims_is_told_when_nothing_waits_any_more(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=1)
    bench.submit("t.wait", 3)
    settle_down(bench, 1)
    assert not bench.was_empty
    bench.let_go(3)
    wait_until(lambda: bench.was_empty == 2)  # when the last one began, and when it ended


def test_slots_show_how_far_each_job_is(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=1)
    bench.submit("t.wait", 2)
    settle_down(bench, 1)
    assert sorted(slot.phase for slot in bench.reader.slots()) == [Phase.HELD, Phase.RUNNING]
    bench.let_go(2)
    assert [slot.phase for slot in bench.reader.slots()] == [Phase.ENDED] * 2


def test_unknown_kind_is_put_back_and_counted(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    held = [bench.hold("t.nobody"), bench.hold("t.wait", args='{"number": 2}'), bench.hold("t.nobody")]
    assert bench.executor.submit(held) == 2
    for each in (held[0], held[2]):
        outcome = bench.outcomes[each.job.id]
        assert isinstance(outcome, Deferral)
        assert (outcome.unknown_kind, outcome.refund) == (True, True)
    bench.let_go(3)


def test_job_that_is_older_than_its_max_age_is_failed_unstarted(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.go.set()
    late, _ = (
        bench.submit("t.wait", metadata=f'{{"awa:max_age": 60, "awa:age": {age}}}')[0] for age in (61, 59)
    )
    wait_until(lambda: len(bench.outcomes) == 2)
    assert len(bench.started) == 1
    assert isinstance(bench.outcomes[late], Ending)


def test_job_whose_attempts_are_used_up_is_failed_unstarted(make_bench: Callable[..., Bench]) -> None:
    """I13: raw SQL may leave such a row."""
    bench = make_bench()
    [job_id] = bench.submit("t.wait", attempt=4, max_attempts=3)
    outcome = bench.outcomes[job_id]
    assert isinstance(outcome, Ending)
    assert outcome.state == JobState.FAILED
    assert bench.started == []


def test_what_has_not_started_is_released_and_never_starts(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=2, threads=1)
    first, *others = bench.submit("t.wait", 4)
    settle_down(bench, 1)
    assert bench.executor.release_unstarted(held_before=0.0) == 0
    assert bench.executor.release_unstarted(held_before=LONG_AGO) == 3
    assert all(isinstance(bench.outcomes[number], Release) for number in others)
    assert bench.executor.release_unstarted(held_before=LONG_AGO) == 0
    bench.let_go(4)
    assert bench.started == [first]


@pytest.mark.parametrize("kind", ["t.wait", "t.wait_async"])
def test_job_held_across_a_pause_of_the_process_is_given_back(
    make_bench: Callable[..., Bench], kind: str
) -> None:
    """After SIGSTOP and SIGCONT a handler started although its job had been rescued meanwhile."""
    bench = make_bench()
    late, fresh = (bench.hold(kind, args='{"number": 1}') for _ in range(2))
    late.held_at -= LONGEST_HOLD + 1
    bench.executor.submit([late, fresh])
    wait_until(lambda: late.job.id in bench.outcomes and bench.started)
    assert bench.outcomes[late.job.id] == Release(late.attempt)
    bench.let_go(2)
    assert len(bench.started) == 1


@pytest.mark.django_db(transaction=True)
def test_atomic_job_whose_lease_may_be_lost_before_it_begins_is_given_back(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    @job(kind="t.atomic", atomic=True)
    def atomic() -> None:
        begun.append(1)

    bench = make_bench()
    held = bench.hold("t.atomic")

    class LateClock:
        def monotonic(self) -> float:
            return time.monotonic() + 61  # STALE_AFTER less HEARTBEAT_INTERVAL is 60 s

    def slow_begin(**options: Any) -> Any:
        monkeypatch.setattr(attempt, "time", LateClock())
        return real(**options)

    real = transaction.atomic
    monkeypatch.setattr(transaction, "atomic", slow_begin)
    bench.executor.submit([held])
    wait_until(lambda: held.job.id in bench.outcomes)
    assert bench.outcomes[held.job.id] == Release(held.attempt)
    assert begun == []


def test_cancelled_async_handler_is_told_once_and_may_clean_up(make_bench: Callable[..., Bench]) -> None:
    """Each look cancelled it again, its cleaning up too."""
    bench = make_bench()
    steps: list[str] = []

    @job(kind="t.cleans")
    async def cleans(number: int) -> None:
        try:
            bench.running.append(number)
            await asyncio.sleep(30)
        finally:
            steps.append("told")
            await asyncio.sleep(0.1)
            steps.append("clean")

    [job_id] = bench.submit("t.cleans")
    settle_down(bench, 1)
    bench.reader.mark_cancelled(bench.reader.slots()[0])
    while job_id not in bench.outcomes:
        bench.executor.cancel_marked()
        time.sleep(0.01)
    assert steps == ["told", "clean"]


def test_def_handler_sees_the_cancel_mark_and_its_timeout(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    seen: list[int] = []

    @job(kind="t.looks", takes_context=True)
    def looks(context: JobContext, number: int) -> None:
        bench.running.append(number)
        while not context.is_cancelled:
            time.sleep(0.005)
        seen.append(number)

    marked = bench.submit("t.looks")
    settle_down(bench, 1)
    overdue = bench.submit("t.looks", metadata='{"awa:timeout": 0.02}')
    wait_until(lambda: seen == overdue)
    bench.reader.mark_cancelled(next(slot for slot in bench.reader.slots() if slot.attempt.job_id in marked))
    wait_until(lambda: seen == overdue + marked)


def test_error_round_the_handler_ends_the_attempt_and_not_the_thread(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the thread: the job was held, and heart-beaten, for ever."""
    bench = make_bench(concurrency=1, threads=1)
    calls: list[bool] = []

    def broken() -> None:
        calls.append(True)
        if len(calls) in (1, 4):  # before the first handler, and after the second
            raise RuntimeError("cannot close")

    monkeypatch.setattr(module, "tidy_own_thread", broken)
    bench.go.set()
    first, second, third = bench.submit("t.wait", 3)
    wait_until(lambda: len(bench.outcomes) == 3)
    assert isinstance(bench.outcomes[first], Deferral)
    assert isinstance(bench.outcomes[second], Completion)
    assert isinstance(bench.outcomes[third], Completion)
