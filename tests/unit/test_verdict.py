"""Verdicts: every end goes through the attempt check, and nothing that an attempt does raises here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from awa_django import registry
from awa_django.errors import TerminalError
from awa_django.jobs import job
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.retry import Exponential, Fixed
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker import verdict

W = "w/1"


def run(
    attempt: int = 1, max_attempts: int = 3, metadata: str | None = None, kind: str = "nobody"
) -> ClaimedJob:
    return ClaimedJob(5, 9, kind, "q", attempt, max_attempts, "{}", metadata, None)


def note(outcome: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(outcome.entry)
    return read


class Boom(Exception):
    pass


ENDS: dict[str, Callable[[ClaimedJob], Outcome | None]] = {
    "error": lambda each: verdict.raised(each, Boom("no"), worker=W),
    "retry after": lambda each: verdict.returned(each, RetryAfter(60, "busy"), worker=W),
    "rescued": lambda each: verdict.failed(each, "gone", worker=W, outcome="rescued", by="leader"),
    "timed out": lambda each: verdict.failed(each, "late", worker=W, outcome="timed_out"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("attempt", "goes_on"), [(1, True), (2, True), (3, False), (4, False)])
def test_every_failure_goes_through_the_attempt_check(end: str, attempt: int, goes_on: bool) -> None:
    """U20: one way out that forgets the check runs a job for ever."""
    outcome = ENDS[end](run(attempt))
    assert outcome is not None
    assert outcome.attempt == Attempt(5, 9)
    if goes_on:
        assert isinstance(outcome, Deferral)
        assert (outcome.state, outcome.refund, outcome.unknown_kind) == (JobState.RETRYABLE, False, False)
    else:
        assert isinstance(outcome, Ending)
        assert outcome.state == JobState.FAILED
    entry = note(outcome)
    assert (entry["attempt"], entry["run_lease"], entry["worker"]) == (min(attempt, 3), 9, W)


def test_terminal_error_fails_whatever_attempts_are_left() -> None:
    outcome = verdict.raised(run(1), TerminalError("never"), worker=W)
    assert isinstance(outcome, Ending)
    assert note(outcome)["error"] == "never"


def test_snooze_gives_the_attempt_back_without_an_entry() -> None:
    assert verdict.returned(run(3), Snooze(90), worker=W) == Deferral(
        Attempt(5, 9), JobState.SCHEDULED, 90.0, refund=True
    )


def test_retry_after_waits_as_told() -> None:
    outcome = verdict.returned(run(), RetryAfter(90, "busy"), worker=W)
    assert isinstance(outcome, Deferral)
    assert outcome.delay == 90.0
    assert note(outcome)["error"] == "busy"
    assert note(verdict.returned(run(), RetryAfter(1), worker=W))["error"]


def test_cancel_ends_as_cancelled_with_its_reason() -> None:
    outcome = verdict.returned(run(3), Cancel("nothing to do"), worker=W)
    assert isinstance(outcome, Ending)
    assert outcome.state == JobState.CANCELLED
    assert note(outcome)["error"] == "nothing to do"
    assert note(outcome)["outcome"] == "cancelled"
    assert note(verdict.returned(run(), Cancel(), worker=W))["error"]


@pytest.mark.parametrize("value", [None, 0, "Snooze", int, [Snooze(1)], ValueError("kept")])
def test_any_other_value_is_a_result(value: object) -> None:
    assert verdict.returned(run(), value, worker=W) is None


def test_attempts_used_up_fail_by_name() -> None:
    outcome = verdict.attempts_used_up(run(4, 3), worker=W)
    assert outcome.state == JobState.FAILED
    assert "3 attempts are used up" in note(outcome)["error"]


def test_entry_says_what_was_raised_and_where() -> None:
    def handler() -> None:
        raise Boom("no\x00\ud800")

    try:
        handler()
    except Boom as exc:
        entry = note(verdict.raised(run(), exc, worker=W))
    assert entry["class"].endswith("test_verdict.Boom")
    assert entry["outcome"] == "retried"
    assert "in handler" in entry["traceback"]
    assert "\x00" not in entry["error"]
    entry["error"].encode()  # no lone surrogate either


def test_error_without_a_text_is_named_by_its_class() -> None:
    assert note(verdict.raised(run(), KeyError(), worker=W))["error"] == "KeyError"


class Gone(Boom):
    pass


@pytest.mark.parametrize(
    ("exc", "ends_as", "how"),
    [
        (Boom("no"), JobState.RETRYABLE, "retried"),
        (ConnectionRefusedError("no"), JobState.RETRYABLE, "retried"),
        (ValueError("no"), JobState.FAILED, "failed"),
        (Gone("no"), JobState.CANCELLED, "discarded"),
        (TerminalError("no"), JobState.FAILED, "failed"),
        (asyncio.CancelledError("no"), JobState.RETRYABLE, "retried"),
    ],
    ids=repr,
)
def test_classes_decide_what_becomes_of_an_exception_of_the_handler(
    exc: BaseException, ends_as: JobState, how: str
) -> None:
    declared = job(kind="tests.verdict.classes", retry_on=(Boom, OSError), discard_on=Gone)(lambda: None)
    registry.unregister(declared.handler)
    outcome = verdict.raised(run(), exc, worker=W, handler=declared.handler)
    assert (outcome.state, note(outcome)["outcome"], note(outcome)["error"]) == (ends_as, how, "no")
    assert "traceback" in note(outcome)
    last = verdict.raised(run(3), exc, worker=W, handler=declared.handler)
    assert last.state == (JobState.CANCELLED if ends_as == JobState.CANCELLED else JobState.FAILED)


def test_with_no_class_to_retry_on_each_exception_fails_the_job() -> None:
    declared = job(kind="tests.verdict.never", retry_on=())(lambda: None)
    registry.unregister(declared.handler)
    assert verdict.raised(run(), Boom("no"), worker=W, handler=declared.handler).state == JobState.FAILED


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Long(Exception):
    def __str__(self) -> str:
        return "x" * 10_000_000


@pytest.mark.parametrize(
    "exc", [Mute(), Long(), SystemExit(3), GeneratorExit(), ExceptionGroup("g", [Mute()])]
)
def test_exception_of_any_kind_makes_a_short_entry(exc: BaseException) -> None:
    outcome = verdict.raised(run(), exc, worker=W)
    assert isinstance(outcome, Deferral)
    assert outcome.entry is not None
    assert len(outcome.entry) < 20_000
    assert note(outcome)["error"]


class Odd:
    """A policy of a user's own that answers nonsense."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def delay(self, attempt: int) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer", [None, 5, "5", Boom(), timedelta.max, timedelta.min, RecursionError(), SystemExit(3)], ids=repr
)
def test_policy_that_answers_nonsense_still_backs_off(answer: object) -> None:
    """It left its job running for ever, and its thread dead."""
    declared = job(kind="tests.verdict.odd", retry=Odd(answer))(lambda: None)
    try:
        wait = verdict.backoff(run(kind="tests.verdict.odd"))
    finally:
        registry.unregister(declared.handler)
    assert timedelta() <= wait <= timedelta(days=365)


def test_who_ends_lost_runs_calls_no_function_of_the_users() -> None:
    """A retry function that hung or exited stopped the supervisor from rescuing any job."""
    called = []

    def asked(attempt: int) -> int:
        called.append(attempt)
        return 3_000

    declared = job(kind="tests.verdict.asked", retry=asked)(lambda: None)
    try:
        lost = verdict.failed(run(kind="tests.verdict.asked"), "gone", worker=W, by="leader")
        assert called == []
        own = verdict.failed(run(kind="tests.verdict.asked"), "no", worker=W)
    finally:
        registry.unregister(declared.handler)
    assert isinstance(lost, Deferral)
    assert 0 < lost.delay <= 5
    assert isinstance(own, Deferral)
    assert own.delay == 3_000


def test_own_policy_of_the_job_holds_for_lost_runs_too() -> None:
    own = '{"awa:retry": {"policy": "fixed", "wait": 7, "jitter": 0}}'
    lost = verdict.failed(run(metadata=own), "gone", worker=W, by="leader")
    assert isinstance(lost, Deferral)
    assert lost.delay == 7


class _Unjudging(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit(3)


class Unjudged(Exception, metaclass=_Unjudging):
    pass


@pytest.mark.parametrize("option", ["discard_on", "retry_on"])
def test_class_that_cannot_judge_leaves_the_job_to_its_attempts(option: str) -> None:
    """It ended the process, with all that ran there, or left its job running for ever."""
    options: Any = {option: Unjudged}
    declared = job(kind="tests.verdict.unjudged", **options)(lambda: None)
    try:
        outcome = verdict.raised(run(), Boom("no"), worker=W, handler=declared.handler)
    finally:
        registry.unregister(declared.handler)
    assert isinstance(outcome, Deferral)
    assert note(outcome)["error"] == "no"


def test_function_of_the_attempt_decides_the_wait() -> None:
    declared = job(kind="tests.verdict.function", retry=lambda attempt: 10 * attempt)(lambda: None)
    try:
        waits = [verdict.backoff(run(attempt, kind="tests.verdict.function")) for attempt in (1, 3)]
    finally:
        registry.unregister(declared.handler)
    assert waits == [timedelta(seconds=10), timedelta(seconds=30)]


@pytest.mark.parametrize("attempt", [0, 1, 1000, 32767, 10**9])
def test_backoff_is_capped_for_every_attempt(attempt: int) -> None:
    assert verdict.backoff(run(attempt)) <= timedelta(hours=24)


def test_policy_of_the_job_comes_before_that_of_its_kind() -> None:
    declared = job(kind="tests.verdict.kind", retry=Fixed(wait=5))(lambda: None)
    try:
        own = '{"awa:retry": {"policy": "fixed", "wait": 7, "jitter": 0}}'
        assert verdict.backoff(run(kind="tests.verdict.kind", metadata=own)) == timedelta(seconds=7)
        assert verdict.backoff(run(kind="tests.verdict.kind")) == timedelta(seconds=5)
        assert verdict.backoff(run(kind="tests.verdict.kind", metadata='{"k": 1}')) == timedelta(seconds=5)
    finally:
        registry.unregister(declared.handler)
    assert verdict.backoff(run()) <= Exponential().base


@pytest.mark.parametrize(
    ("metadata", "delay"),
    [
        (None, 5.0),
        ('{"awa:unknown_kind": {"count": 1}}', 10.0),
        ('{"awa:unknown_kind": {"count": 4}}', 80.0),
        ('{"awa:unknown_kind": {"count": 1000000}}', 300.0),
        ('{"awa:unknown_kind": {"count": -5}}', 5.0),
        ('{"awa:unknown_kind": {"count": 1e400}}', 5.0),
        ('{"awa:unknown_kind": "x"}', 5.0),
        ("[" * 100_000, 5.0),
    ],
)
def test_unknown_kind_is_put_back_uncharged_with_a_growing_delay(metadata: str | None, delay: float) -> None:
    assert verdict.unknown_kind(run(metadata=metadata)) == Deferral(
        Attempt(5, 9), JobState.SCHEDULED, delay, refund=True, unknown_kind=True
    )


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Completion(Attempt(1, 1)), "completed"),
        (Deferral(Attempt(1, 1), JobState.RETRYABLE, 1.0), "retried"),
        (Deferral(Attempt(1, 1), JobState.SCHEDULED, 1.0), "snoozed"),
        (Deferral(Attempt(1, 1), JobState.SCHEDULED, 1.0, unknown_kind=True), "unknown_kind"),
        (Ending(Attempt(1, 1), JobState.FAILED), "failed"),
        (Ending(Attempt(1, 1), JobState.CANCELLED), "cancelled"),
        (Release(Attempt(1, 1)), "released"),
    ],
)
def test_outcome_has_one_word(outcome: Any, word: str) -> None:
    assert verdict.describe(outcome) == word


def test_who_ended_a_run_of_another_is_named() -> None:
    assert note(verdict.failed(run(), "gone", worker=W, by="leader"))["by"] == "leader"
    assert "by" not in note(verdict.failed(run(), "gone", worker=W))
