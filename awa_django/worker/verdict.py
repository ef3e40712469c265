"""Verdicts: what the end of an attempt means for the job. Every exit goes through the attempt check."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.errors import TerminalError
from awa_django.handler import Handler
from awa_django.logs import get_logger
from awa_django.outcomes import LONGEST_WAIT, Cancel, RetryAfter, Snooze
from awa_django.retry import POLICIES, Exponential, RetryPolicy, from_json
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Outcome, Release, Run
from awa_django.worker.aging import age, max_age
from awa_django.worker.error_entry import entry, tell

logger = get_logger(__name__)

# A kind unknown here is tried again after 5 s, 10 s, ... at most 5 minutes: a deploy may be under way.
UNKNOWN_KIND_DELAY = 5.0
UNKNOWN_KIND_MAX_DELAY = 300.0
# A job that could not begin because the database was away waits so long: it is no loop then.
POSTPONED_DELAY = 5.0


def returned(run: Run, value: object, *, worker: str) -> Deferral | Ending | None:
    """What a handler's returned ``Snooze``, ``RetryAfter`` or ``Cancel`` means; None: it completed.

    Raises: TypeError for what was meant so and says nothing: its class, or a TerminalError.
    """
    match value:
        case Snooze(delay=delay):
            return Deferral(
                _attempt(run),
                JobState.SCHEDULED,
                delay.total_seconds(),
                refund=True,
                aging=max_age(run) is not None,
            )
        case RetryAfter(delay=delay, reason=reason):
            error = reason or "the handler asked to be run again"
            return failed(run, error, worker=worker, delay=delay)
        case Cancel(reason=reason):
            error = reason or "cancelled by its handler"
            return Ending(
                _attempt(run), JobState.CANCELLED, entry(run, error, worker=worker, outcome="cancelled")
            )
        case type() if issubclass(value, (Snooze, RetryAfter, Cancel, TerminalError)):
            raise TypeError(f"the handler returned the class {value.__name__} in place of an object of it")
        case TerminalError():
            raise TypeError(f"the handler returned {value!r} in place of raising it")
        case _:
            return None


def raised(run: Run, exc: BaseException, *, worker: str, handler: Handler | None = None) -> Deferral | Ending:
    """What an exception means: try again after the backoff, or fail, or be discarded.

    ``handler`` is given when the exception is its own, to be judged by its ``retry_on`` and ``discard_on``.
    """
    error, class_name, trace = tell(exc)
    terminal = isinstance(exc, TerminalError)
    if handler is not None and not terminal:
        try:
            discarded, terminal = _judged(exc, handler)
        except BaseException:  # a class of the user's own must not leave the job running
            logger.exception(
                "job %s: its exception classes cannot judge, it is tried again",
                run.id,
                extra={"job_id": run.id, "run_lease": run.run_lease, "kind": run.kind},
            )
        else:
            if discarded:
                how = "discarded"
                note = entry(run, error, worker=worker, outcome=how, class_name=class_name, trace=trace)
                return Ending(_attempt(run), JobState.CANCELLED, note)
    return failed(run, error, worker=worker, terminal=terminal, class_name=class_name, trace=trace)


def _judged(exc: BaseException, handler: Handler) -> tuple[bool, bool]:
    """Whether the handler's classes discard the job, and whether they fail it at once."""
    if isinstance(exc, handler.discard_on):
        return True, False
    # What is no Exception (SystemExit, CancelledError) is the process's affair more than the job's.
    if handler.retry_on is None or not isinstance(exc, Exception):
        return False, False
    return False, not isinstance(exc, handler.retry_on)


def failed(
    run: Run,
    error: str,
    *,
    worker: str,
    outcome: str | None = None,
    delay: timedelta | None = None,
    terminal: bool = False,
    class_name: str | None = None,
    trace: str | None = None,
    by: str | None = None,
) -> Deferral | Ending:
    """The attempt check: attempts left -> retryable after the backoff (or ``delay``), else failed.

    ``by`` is who ended the run when that was not its own worker.
    """
    if not terminal and run.attempt < run.max_attempts:
        wait = backoff(run, is_own=by is None) if delay is None else delay
        most = max_age(run)
        if most is None or age(run) + wait.total_seconds() <= most:
            how = outcome or "retried"
            note = entry(run, error, worker=worker, outcome=how, class_name=class_name, trace=trace, by=by)
            aging = most is not None
            return Deferral(_attempt(run), JobState.RETRYABLE, wait.total_seconds(), note, aging=aging)
        error = f"{error} (not tried again: older than its max_age of {timedelta(seconds=most)} by then)"
    how = outcome or "failed"
    note = entry(run, error, worker=worker, outcome=how, class_name=class_name, trace=trace, by=by)
    return Ending(_attempt(run), JobState.FAILED, note)


def attempts_used_up(run: Run, *, worker: str) -> Ending:
    """A row that came with its attempts used up (raw SQL) is failed and never started."""
    error = f"not started: its {run.max_attempts} attempts are used up"
    return Ending(_attempt(run), JobState.FAILED, entry(run, error, worker=worker, outcome="failed"))


def not_begun(run: Run, *, worker: str) -> Ending | None:
    """How a claimed job ends that is not to be started; None: it is to be."""
    if run.attempt > run.max_attempts:
        return attempts_used_up(run, worker=worker)
    late = age(run)
    most = max_age(run) if late else None
    if most is None or late <= most:
        return None
    error = (
        f"not started: it was due {timedelta(seconds=round(late))} ago, "
        f"and its max_age is {timedelta(seconds=most)}"
    )
    return Ending(_attempt(run), JobState.FAILED, entry(run, error, worker=worker, outcome="expired"))


def unknown_kind(run: Run) -> Deferral:
    """No handler here: back to the deferred jobs uncharged, for a worker that has one."""
    seen = 0
    # Suppressed: it is the first time, or the metadata is not ours to judge.
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        seen = int(json.loads(run.metadata or "{}")["awa:unknown_kind"]["count"])
    delay = min(UNKNOWN_KIND_DELAY * 2 ** min(max(seen, 0), 16), UNKNOWN_KIND_MAX_DELAY)
    return Deferral(_attempt(run), JobState.SCHEDULED, delay, refund=True, unknown_kind=True)


def postponed(run: Run) -> Deferral:
    """Not begun, and for no fault of its own: again in a while, uncharged."""
    return Deferral(_attempt(run), JobState.SCHEDULED, POSTPONED_DELAY, refund=True)


def backoff(run: Run, *, is_own: bool = True) -> timedelta:
    """The wait after a failed attempt: the job's own policy, its kind's, or the setting's.

    Not ``is_own``: somebody else ends the run. Code of the user's could stop him, and he has all the
    lost runs to end; so the default policy stands for one that is none of ours.
    """
    try:
        policy = _policy(run)
        if not is_own and type(policy) not in POLICIES:
            policy = Exponential()
        return min(max(policy.delay(run.attempt), timedelta()), LONGEST_WAIT)
    except BaseException:  # a policy of the user's own must not leave the job running
        logger.exception(
            "job %s: its retry policy failed, the default one decides",
            run.id,
            extra={"job_id": run.id, "run_lease": run.run_lease, "kind": run.kind},
        )
        return Exponential().delay(run.attempt)


def release(run: Run) -> Release:
    """Claimed and never started."""
    return Release(_attempt(run))


def describe(outcome: Outcome) -> str:
    """One word for logs and counters."""
    match outcome:
        case Completion():
            return "completed"
        case Deferral(unknown_kind=True):
            return "unknown_kind"
        case Deferral(state=JobState.SCHEDULED):
            return "snoozed"
        case Deferral():
            return "retried"
        case Ending(state=state):
            return str(state)
        case _:
            return "released"


def _policy(run: Run) -> RetryPolicy:
    if run.metadata:
        try:
            return from_json(json.loads(run.metadata)["awa:retry"])
        except (ValueError, TypeError, KeyError, RecursionError):
            pass  # none of its own
    handler = registry.find(run.kind)
    return get_settings().retry if handler is None else handler.retry


def _attempt(run: Run) -> Attempt:
    return Attempt(run.id, run.run_lease)
