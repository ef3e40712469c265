"""One attempt: arguments, handler, and what its return value or exception means for the job."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from awa_django.context import JobContext
from awa_django.errors import TerminalError
from awa_django.jobs import job
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Release
from awa_django.worker import attempt as module
from awa_django.worker.attempt import timeout_of
from tests.worker.attempts import claimed, entry, run, run_async

pytestmark = pytest.mark.usefixtures("registered")


def test_handler_gets_its_arguments_typed_and_completes() -> None:
    seen: list[object] = []

    @job(kind="t.typed")
    def typed(when: datetime, n: int = 3) -> str:
        seen.extend((when, n))
        return "not kept"

    assert run(typed, claimed('{"when": "2026-01-02T03:04:05Z"}')) == Completion(Attempt(5, 9))
    assert seen == [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), 3]


def test_result_is_kept_when_asked_for() -> None:
    @job(kind="t.kept", keep_result=True)
    def kept() -> Any:
        return {"total": float("nan"), "text": "a\x00b"}

    outcome = run(kept, claimed())
    assert isinstance(outcome, Completion)
    assert outcome.result is not None
    assert "\\u0000" not in outcome.result
    assert json.loads(outcome.result)["total"] is None


@pytest.mark.parametrize("args", ['{"n": "x"}', '{"other": 1}', "{}", '{"n": 1' + "0" * 5000 + "}"])
def test_arguments_that_do_not_fit_fail_the_attempt_and_not_the_worker(args: str) -> None:
    """U16: a payload that cannot be read is one job's own failure, and stays in its row."""

    @job(kind="t.bad")
    def bad(n: int) -> None:
        raise AssertionError("not called")

    assert entry(run(bad, claimed(args)))["class"].endswith("InvalidJob")


@pytest.mark.parametrize(
    "exc", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_handler_raises_ends_its_attempt_only(exc: BaseException, is_async: bool) -> None:
    if is_async:

        @job(kind="t.raises.async")
        async def raises_async() -> None:
            raise exc

        outcome = run_async(raises_async, claimed())
    else:

        @job(kind="t.raises")
        def raises() -> None:
            raise exc

        outcome = run(raises, claimed())
    assert isinstance(outcome, Deferral)
    assert type(exc).__name__ in entry(outcome)["class"]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (Snooze(5), JobState.SCHEDULED),
        (RetryAfter(5), JobState.RETRYABLE),
        (Cancel("done"), JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_returned_outcome_is_taken_at_its_word(value: object, state: JobState, is_async: bool) -> None:
    if is_async:

        @job(kind="t.returns.async")
        async def returns_async() -> object:
            return value

        outcome = run_async(returns_async, claimed())
    else:

        @job(kind="t.returns")
        def returns() -> object:
            return value

        outcome = run(returns, claimed())
    assert isinstance(outcome, (Deferral, Ending))
    assert outcome.state == state


@pytest.mark.parametrize("value", [Snooze, RetryAfter, Cancel, TerminalError, TerminalError("never")])
def test_what_was_meant_as_an_outcome_and_is_none_is_no_success(value: object) -> None:
    """The parentheses or the ``raise`` forgotten: the job was completed, and nobody heard of it."""

    @job(kind="t.meant")
    def meant() -> object:
        return value

    found = entry(run(meant, claimed()))
    assert (found["class"], found["outcome"]) == ("TypeError", "retried")
    assert "in place of" in found["error"]


def test_terminal_error_and_the_last_attempt_fail() -> None:
    @job(kind="t.fails")
    def fails(terminal: bool) -> None:
        raise TerminalError("never") if terminal else ValueError("again")

    for args, attempt in (('{"terminal": true}', 1), ('{"terminal": false}', 3)):
        outcome = run(fails, claimed(args, attempt=attempt))
        assert isinstance(outcome, Ending)
        assert outcome.state == JobState.FAILED


def test_context_says_what_runs_and_reports() -> None:
    seen: list[JobContext] = []
    reports: list[object] = []

    @job(kind="t.context", takes_context=True, timeout=60)
    def contextual(context: JobContext, n: int) -> None:
        seen.append(context)
        context.progress(50, "half", checkpoint={"page": n})

    given = claimed(
        '{"n": 7}', attempt=2, metadata='{"k": "v"}', progress='{"percent": 9, "checkpoint": {"page": 3}}'
    )
    before = datetime.now(UTC)
    run(contextual, given, cancelled=lambda: True, report=reports.append)
    [context] = seen
    assert (context.job_id, context.run_lease, context.attempt, context.max_attempts) == (5, 9, 2, 3)
    assert (context.metadata, context.checkpoint, context.is_cancelled) == ({"k": "v"}, {"page": 3}, True)
    assert context.deadline is not None
    after = datetime.now(UTC)
    assert before <= context.deadline - timedelta(seconds=60) <= after
    assert reports == [{"percent": 50, "message": "half", "checkpoint": {"page": 7}}]


def test_async_handler_is_timed_out() -> None:
    @job(kind="t.slow", timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(30)

    found = entry(run_async(slow, claimed()))
    assert (found["outcome"], found["class"]) == ("timed_out", "TimeoutError")


def test_timeout_error_of_the_handlers_own_is_an_ordinary_failure() -> None:
    @job(kind="t.own", timeout=30)
    async def own() -> None:
        raise TimeoutError("the other side")

    assert entry(run_async(own, claimed()))["outcome"] == "retried"


def test_timeout_while_decoding_is_an_ordinary_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    @job(kind="t.decode", timeout=30)
    async def decoded() -> None: ...

    def decode(args: object) -> dict[str, object]:
        raise TimeoutError("odd")

    monkeypatch.setattr(type(decoded.handler), "decode", lambda self, args: decode(args))
    assert entry(run_async(decoded, claimed()))["outcome"] == "retried"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, 60.0),
        ('{"awa:timeout": 5}', 5.0),
        ('{"awa:timeout": 0.25}', 0.25),
        ('{"awa:timeout": 0}', 60.0),
        ('{"awa:timeout": -1}', 60.0),
        ('{"awa:timeout": "5"}', 60.0),
        ('{"awa:timeout": true}', 60.0),
        ('{"awa:timeout": 1e400}', 31_536_000.0),
        ('{"awa:timeout": -1e400}', 60.0),
        ('{"awa:timeout": 1' + "0" * 400 + "}", 31_536_000.0),
        ('{"awa:timeout": 1' + "0" * 5000 + "}", 60.0),
        ('{"awa:timeout": ' + "[" * 50_000 + "}", 60.0),
    ],
)
def test_timeout_is_the_jobs_own_or_its_kinds(metadata: str | None, expected: float) -> None:
    @job(kind="t.timeout", timeout=60)
    def timed() -> None: ...

    assert timeout_of(claimed(metadata=metadata), timed.handler) == expected


def test_retention_of_zero_asks_for_deletion() -> None:
    @job(kind="t.gone")
    def gone() -> None: ...

    with override_settings(AWA={"RETENTION": {"queues": {"q": {"completed": 0}}}}):
        assert run(gone, claimed()) == Completion(Attempt(5, 9), None, delete=True)
        assert run(gone, claimed(queue="other")) == Completion(Attempt(5, 9))


@dataclass
class Told:
    """An argument that tells when it is decoded."""

    value: int

    def __post_init__(self) -> None:
        told.append("decoded")


told: list[str] = []


@pytest.mark.parametrize("is_async", [False, True])
def test_whether_a_handler_may_begin_is_asked_as_the_last_thing(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may sleep before, or arguments take long to decode: the job is another's by then."""
    told.clear()

    @job(kind="t.begun")
    def begun(told_of: Told) -> None:
        told.append("begun")

    @job(kind="t.begun_async")
    async def begun_async(told_of: Told) -> None:
        told.append("begun")

    class Clock:
        def monotonic(self) -> float:
            told.append("asked")
            return 2.0

    monkeypatch.setattr(module, "time", Clock())
    given, options = claimed('{"told_of": {"value": 1}}'), {"begin_by": 1.0}
    outcome = run_async(begun_async, given, **options) if is_async else run(begun, given, **options)
    assert (outcome, told) == (Release(Attempt(5, 9)), ["decoded", "asked"])


def test_async_handler_does_not_begin_when_what_comes_before_it_took_too_long() -> None:
    begun = []

    @job(kind="t.late_async")
    async def late() -> None:
        begun.append(1)

    async def prepare() -> None:
        pass

    given = {"prepare": prepare, "begin_by": 0.0}
    assert run_async(late, claimed(), **given) == Release(Attempt(5, 9))
    assert begun == []


def test_classes_judge_what_the_handler_raises_and_not_arguments_that_do_not_fit() -> None:
    """InvalidJob is a ValueError: a deploy would discard the jobs of yesterday."""

    @job(kind="t.judged", discard_on=ValueError)
    def judged(number: int) -> None:
        raise ValueError(number)

    assert entry(run(judged, claimed('{"number": 1}')))["outcome"] == "discarded"
    assert entry(run(judged, claimed('{"other": 1}')))["outcome"] == "retried"

    @job(kind="t.judged_async", retry_on=OSError)
    async def judged_async(number: int) -> None:
        raise ValueError(number)

    assert entry(run_async(judged_async, claimed('{"number": 1}')))["outcome"] == "failed"
    assert entry(run_async(judged_async, claimed('{"other": 1}')))["outcome"] == "retried"
