"""One attempt: arguments, handler, and what its return value or exception means for the job."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from awa_django.context import JobContext
from awa_django.errors import TerminalError
from awa_django.jobs import job
from awa_django.jobs.job import Job
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.retry import Fixed
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker.attempt import run_attempt, run_attempt_async, timeout_of
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.usefixtures("registered")

W = "w/1"


def claimed(args: str = "{}", **columns: Any) -> ClaimedJob:
    values: dict[str, Any] = {
        "id": 5, "run_lease": 9, "kind": "k", "queue": "q", "attempt": 1, "max_attempts": 3,
        "args": args, "metadata": None, "progress": None,
    }  # fmt: skip
    return ClaimedJob(**{**values, **columns})


def run(declared: Job[Any, Any], given: ClaimedJob, **options: Any) -> Outcome | None:
    return run_attempt(given, declared.handler, worker=W, **options)


def run_async(declared: Job[Any, Any], given: ClaimedJob, **options: Any) -> Outcome | None:
    return asyncio.run(run_attempt_async(given, declared.handler, worker=W, **options))


def entry(outcome: Outcome | None) -> dict[str, Any]:
    assert isinstance(outcome, (Deferral, Ending))
    assert outcome.entry is not None
    read: dict[str, Any] = json.loads(outcome.entry)
    return read


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


def audit(what: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.job_kinds (kind) VALUES (%s)", [what])


def audited() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind FROM awa.job_kinds")
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def atomic() -> Job[Any, Any]:
    @job(kind="t.atomic", atomic=True, keep_result=True, retry=Fixed(wait=1))
    def atomic(how: str) -> object:
        audit("effect")
        if how == "raise":
            raise ValueError("no")
        return {"snooze": Snooze(5), "cancel": Cancel()}.get(how, how)

    return atomic


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
class TestAtomic:
    def test_effects_and_completion_are_committed_together(self, atomic: Job[Any, Any]) -> None:
        job_id = insert_job("running", run_lease=9)
        assert run(atomic, claimed('{"how": "ok"}', id=job_id)) is None
        row = reload_job(job_id)
        assert (row.state, row.result, audited()) == ("completed", "ok", ["effect"])

    @pytest.mark.parametrize("how", ["raise", "snooze", "cancel"])
    def test_what_is_no_completion_rolls_the_effects_back(self, atomic: Job[Any, Any], how: str) -> None:
        job_id = insert_job("running", run_lease=9)
        outcome = run(atomic, claimed(json.dumps({"how": how}), id=job_id))
        assert isinstance(outcome, (Deferral, Ending))
        assert (reload_job(job_id).state, audited()) == ("running", [])

    def test_stale_run_leaves_no_effects_and_its_completion_is_found_stale(
        self, atomic: Job[Any, Any]
    ) -> None:
        """It was counted as completed."""
        job_id = insert_job("running", run_lease=9)
        update_job(job_id, run_lease="10")
        outcome = run(atomic, claimed('{"how": "ok"}', id=job_id))
        assert outcome == Completion(Attempt(job_id, 9), '"ok"')
        assert (reload_job(job_id).state, audited()) == ("running", [])

    @pytest.mark.parametrize("breaks", ["leaves a block open", "leaves two", "sets rollback"])
    def test_handler_that_breaks_its_transaction_ends_like_one_that_raises(self, breaks: str) -> None:
        """Nothing was committed, and nobody knew: it ran again and again, without end."""

        @job(kind="t.breaks", atomic=True)
        def breaking() -> None:
            audit("effect")
            if breaks == "sets rollback":
                transaction.set_rollback(True)
                return
            for _ in range(1 + (breaks == "leaves two")):
                transaction.atomic().__enter__()
            audit("another")

        job_id = insert_job("running", run_lease=9)
        outcome = run(breaking, claimed(id=job_id))
        assert isinstance(outcome, Deferral)
        assert outcome.state == JobState.RETRYABLE
        assert not connection.in_atomic_block
        assert (reload_job(job_id).state, audited()) == ("running", [])

    def test_what_is_raised_after_the_commit_is_logged_and_changes_no_outcome(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It was told, counted and logged as a retry of a run that was over, without a word of the error."""

        @job(kind="t.hooked", atomic=True)
        def hooked() -> None:
            transaction.on_commit(lambda: json.loads("not after all"))

        job_id = insert_job("running", run_lease=9)
        assert run(hooked, claimed(id=job_id)) is None
        assert reload_job(job_id).state == "completed"
        [record] = [each for each in caplog.records if each.name == "awa_django.worker.attempt"]
        assert record.getMessage() == f"job {job_id} is completed, but what it gave to on_commit failed"
        assert "JSONDecodeError" in str(record.exc_text)

    def test_retention_of_zero_deletes_the_row_with_the_effects(self, atomic: Job[Any, Any]) -> None:
        job_id = insert_job("running", run_lease=9)
        with override_settings(AWA={"RETENTION": {"completed": 0}}):
            assert run(atomic, claimed('{"how": "ok"}', id=job_id)) is None
        assert (reload_job(job_id), audited()) == (None, ["effect"])


@pytest.mark.django_db(transaction=True)
def test_atomic_handler_does_not_begin_when_its_transaction_took_too_long() -> None:
    """BEGIN hung on a dead connection, or the process was paused in it: the job was another's by then."""
    begun = []

    @job(kind="t.late", atomic=True)
    def late() -> None:
        begun.append(1)

    assert run(late, claimed(), may_begin=lambda: False) == Release(Attempt(5, 9))
    assert begun == []


@dataclass
class Told:
    """An argument that tells when it is decoded."""

    value: int

    def __post_init__(self) -> None:
        told.append("decoded")


told: list[str] = []


@pytest.mark.parametrize("is_async", [False, True])
def test_whether_a_handler_may_begin_is_asked_as_the_last_thing(is_async: bool) -> None:
    """The machine may sleep before, or arguments take long to decode: the job is another's by then."""
    told.clear()

    @job(kind="t.begun")
    def begun(told_of: Told) -> None:
        told.append("begun")

    @job(kind="t.begun_async")
    async def begun_async(told_of: Told) -> None:
        told.append("begun")

    def may_begin() -> bool:
        told.append("asked")
        return False

    given, options = claimed('{"told_of": {"value": 1}}'), {"may_begin": may_begin}
    outcome = run_async(begun_async, given, **options) if is_async else run(begun, given, **options)
    assert (outcome, told) == (Release(Attempt(5, 9)), ["decoded", "asked"])


def test_async_handler_does_not_begin_when_what_comes_before_it_took_too_long() -> None:
    begun = []

    @job(kind="t.late_async")
    async def late() -> None:
        begun.append(1)

    async def prepare() -> None:
        pass

    given = {"prepare": prepare, "may_begin": lambda: False}
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
