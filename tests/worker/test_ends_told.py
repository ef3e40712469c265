"""Signals: how a run ended is told once it is written, and what receivers do harms no job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from awa_django import registry, signals
from awa_django.jobs import Job, job
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker.holdings import HeldJob
from awa_django.worker.slots import Counter
from tests.factories import reload_job
from tests.waiting import wait_until
from tests.worker.completer_desk import CompleterDesk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

ENTRY = '{"error": "no", "run_lease": 1, "worker": "w/1"}'
KEY = bytes(range(16))


@pytest.fixture
def told() -> Iterator[list[tuple[str, signals.EndedRun]]]:
    """What the signals said, with their senders' names, in the order in which they were sent."""
    heard: list[tuple[str, signals.EndedRun]] = []

    def hear(sender: Any, run: signals.EndedRun, **_: Any) -> None:
        heard.append((repr(sender), run))

    for signal in signals.BY_END.values():
        signal.connect(hear)
    yield heard
    for signal in signals.BY_END.values():
        signal.disconnect(hear)


@pytest.fixture
def declared() -> Iterator[Job[[], None]]:
    made = job(kind="tests.completer.told")(lambda: None)
    yield made
    registry.unregister(made.handler)


def end(
    desk: CompleterDesk, declared: Job[[], None], outcome_of: Callable[[Attempt], Outcome | None]
) -> HeldJob:
    held = desk.run()
    held.handler = declared.handler
    desk.completer.put(held, outcome_of(held.attempt))
    return held


def test_each_end_is_told_once_it_is_written(
    desk: CompleterDesk, told: list[tuple[str, signals.EndedRun]], declared: Job[[], None]
) -> None:
    entry = '{"error": "no", "class": "E", "outcome": "timed_out", "traceback": "T", "run_lease": 1}'
    ends: dict[str, Callable[[Attempt], Outcome | None]] = {
        "completed": Completion,
        "atomic": lambda attempt: None,
        "retried": lambda attempt: Deferral(attempt, JobState.RETRYABLE, 60.0, entry),
        "snoozed": lambda attempt: Deferral(attempt, JobState.SCHEDULED, 9.0, refund=True),
        "failed": lambda attempt: Ending(attempt, JobState.FAILED, ENTRY),
        "cancelled": lambda attempt: Ending(attempt, JobState.CANCELLED, ENTRY),
        "released": Release,
        "unknown": lambda attempt: Deferral(attempt, JobState.SCHEDULED, 5.0, refund=True, unknown_kind=True),
    }
    ids = {end(desk, declared, outcome).job.id: name for name, outcome in ends.items()}
    desk.completer.start()
    desk.settle()
    heard = {ids[run.job_id]: run for _, run in told}
    assert len(told) == len(heard)
    assert {name: run.how for name, run in heard.items()} == {
        "completed": "completed", "atomic": "completed", "retried": "timed_out", "snoozed": "snoozed",
        "failed": "failed", "cancelled": "cancelled",
    }  # fmt: skip
    assert {sender for sender, _ in told} == {repr(declared)}
    retried = heard["retried"]
    assert (retried.error, retried.exception, retried.traceback) == ("no", "E", "T")
    assert retried.again_in == timedelta(minutes=1)
    assert (retried.args, retried.metadata, retried.worker) == ({}, {}, "w/1")


def test_nothing_is_told_of_a_run_whose_lease_is_over(
    desk: CompleterDesk, told: list[tuple[str, signals.EndedRun]], declared: Job[[], None]
) -> None:
    held = end(desk, declared, lambda attempt: Completion(Attempt(attempt.job_id, 7)))
    desk.completer.start()
    desk.settle()
    assert held.job.id
    assert told == []
    assert desk.counts() == {Counter.STALE: 1}


def test_what_is_told_is_how_the_row_ended_where_that_is_not_as_its_handler_did(
    desk: CompleterDesk, told: list[tuple[str, signals.EndedRun]], declared: Job[[], None]
) -> None:
    held = end(desk, declared, lambda attempt: Completion(attempt, '{"r": "\\u0000"}'))
    desk.completer.start()
    desk.settle()
    assert reload_job(held.job.id).state == "failed"
    [(_, run)] = told
    assert run.how == "unwritable"
    assert desk.counts() == {Counter.FAILED: 1}


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=repr)
def test_receiver_that_raises_harms_nothing(
    desk: CompleterDesk,
    told: list[tuple[str, signals.EndedRun]],
    declared: Job[[], None],
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    def stumble(**_: Any) -> None:
        raise error

    signals.job_failed.connect(stumble)
    try:
        end(desk, declared, lambda attempt: Ending(attempt, JobState.FAILED, ENTRY))
        end(desk, declared, Completion)
        desk.completer.start()
        desk.settle()
    finally:
        signals.job_failed.disconnect(stumble)
    assert [run.how for _, run in told][-1] == "completed"
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


def test_transaction_that_a_receiver_leaves_open_takes_in_nothing_of_the_next(
    desk: CompleterDesk, declared: Job[[], None]
) -> None:
    def leave_open(**_: Any) -> None:
        transaction.atomic().__enter__()

    open_before = []

    def look(**_: Any) -> None:
        open_before.append(connection.in_atomic_block)
        connection.ensure_connection()

    signals.job_failed.connect(leave_open)
    signals.job_completed.connect(look)
    try:
        for outcome in (Completion, lambda attempt: Ending(attempt, JobState.FAILED, ENTRY), Completion):
            end(desk, declared, outcome)
        desk.completer.start()
        desk.settle()
    finally:
        signals.job_failed.disconnect(leave_open)
        signals.job_completed.disconnect(look)
    assert open_before == [False, False]


def test_slow_receiver_keeps_the_slot_and_no_other_run_waits_to_be_written(
    desk: CompleterDesk, declared: Job[[], None]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def linger(**_: Any) -> None:
        begun.set()
        assert go_on.wait(30)

    signals.job_completed.connect(linger)
    try:
        first = end(desk, declared, Completion)
        desk.completer.start()
        assert begun.wait(30)
        second = end(desk, declared, Completion)
        wait_until(lambda: reload_job(second.job.id).state == "completed", message="the second is written")
        assert len(desk.holdings) == 2
        assert desk.reader.slots()[0].attempt == first.attempt
    finally:
        go_on.set()
        desk.settle()
        signals.job_completed.disconnect(linger)


def test_receiver_of_one_job_hears_of_no_other(desk: CompleterDesk, declared: Job[[], None]) -> None:
    heard: list[int] = []

    def hear(run: signals.EndedRun, **_: Any) -> None:
        heard.append(run.job_id)

    other = job(kind="tests.completer.other")(lambda: None)
    signals.job_completed.connect(hear, sender=declared)
    try:
        end(desk, other, Completion)
        held = end(desk, declared, Completion)
        desk.completer.start()
        desk.settle()
    finally:
        signals.job_completed.disconnect(hear, sender=declared)
        registry.unregister(other.handler)
    assert heard == [held.job.id]
