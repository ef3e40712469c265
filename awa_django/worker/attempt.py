"""One attempt: from stored arguments, through the handler, to what its end means for the job.

The only place that catches everything a handler can raise.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction

from awa_django import failpoints
from awa_django.codec import JSON, encode_result
from awa_django.committing import committing
from awa_django.conf import AwaSettings, get_settings
from awa_django.context import JobContext
from awa_django.handler import Handler
from awa_django.logs import get_logger
from awa_django.operations.change import BULK_KIND
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.claim import claimed_args
from awa_django.storage.rows import ClaimedJob, Completion, Outcome, Release
from awa_django.worker import forks, verdict
from awa_django.worker.database import is_connection_error
from awa_django.worker.middleware import Surrounded

logger = get_logger(__name__)

# The clock of a run with a timeout goes from its start, so what comes before its handler must be short.
PREPARE_WITHIN = 2.0

_UNBEGUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


def run_attempt(
    job: ClaimedJob,
    handler: Handler,
    *,
    worker: str,
    cancelled: Callable[[], bool] = lambda: False,
    report: Callable[[dict[str, JSON]], None] = lambda progress: None,
    begin_by: float = math.inf,
) -> Outcome | None:
    """Run a ``def`` handler once on this thread; what that means for the job.

    None: the handler is ``atomic`` and its completion is committed already. At the monotonic instant
    ``begin_by`` the lease may be lost: what has not begun by then is released (a machine can stop anywhere).

    In a context of its own: the language, the time zone and the context variables that it sets end with it.
    """
    return copy_context().run(_run_attempt, job, handler, worker, cancelled, report, begin_by)


def _run_attempt(
    job: ClaimedJob,
    handler: Handler,
    worker: str,
    cancelled: Callable[[], bool],
    report: Callable[[dict[str, JSON]], None],
    begin_by: float,
) -> Outcome | None:
    context: JobContext | None = None
    arguments: dict[str, object] | None = None
    outcome: Outcome
    try:
        args = job.args
        if args is None:
            args = _read_args(job)
        settings = get_settings()
        surrounded = Surrounded(handler) if settings.middleware or settings.carry else handler
        if handler.takes_context or surrounded is not handler:
            context = _context(job, handler, worker, cancelled, report)
        arguments = handler.decode(args)
        if handler.atomic:
            stored = _run_atomic(job, surrounded, context, arguments, worker, begin_by)
            if handler.hears_of_end:
                _tell(handler, context, arguments, stored)
            return None
        if time.monotonic() >= begin_by:
            return Release(job.key)
        outcome = _returned(job, handler, _call(surrounded, context, arguments), worker, settings)
    except _EndsAs as exc:
        outcome = exc.outcome
    except BaseException as exc:  # noqa: BLE001  (SystemExit and its like end the job, never the worker)
        outcome = verdict.raised(job, exc, worker=worker, handler=_whose(handler, arguments))
        if handler.hears_of_end:  # in here: who logs it wants sys.exc_info()
            _tell(handler, context, arguments, outcome)
        return outcome
    if handler.hears_of_end:
        _tell(handler, context, arguments, outcome)
    return outcome


async def run_attempt_async(
    job: ClaimedJob,
    handler: Handler,
    *,
    worker: str,
    cancelled: Callable[[], bool] = lambda: False,
    report: Callable[[dict[str, JSON]], None] = lambda progress: None,
    prepare: Callable[[], Awaitable[None]] | None = None,
    begin_by: float = math.inf,
) -> Outcome:
    """Run an ``async def`` handler once on this loop, after ``prepare``, unless it is past ``begin_by``;
    what that means for the job."""
    seconds = timeout_of(job, handler)
    timer = None if seconds is None else asyncio.timeout(seconds)
    depth = forks.depth
    context: JobContext | None = None
    arguments: dict[str, object] | None = None
    outcome: Outcome
    try:
        args = job.args
        if prepare is not None or args is None:
            args = await _prepared(job, prepare, None if seconds is None else PREPARE_WITHIN)
        settings = get_settings()
        surrounded = Surrounded(handler) if settings.middleware or settings.carry else handler
        if handler.takes_context or surrounded is not handler:
            context = _context(job, handler, worker, cancelled, report)
        arguments = handler.decode(args)
        if time.monotonic() >= begin_by:
            return Release(job.key)
        running = surrounded.call(context, arguments)
        if timer is None:
            value = await running  # type: ignore[misc]
        else:
            async with timer:
                value = await running  # type: ignore[misc]
        if forks.depth != depth:
            forks.leave(None)
        outcome = _returned(job, handler, value, worker, settings)
    except _EndsAs as exc:
        outcome = exc.outcome
    except BaseException as exc:  # noqa: BLE001  (CancelledError and its like end the job, never the loop)
        if forks.depth != depth:
            forks.leave(exc)
        outcome = _timed_out_or_raised(job, exc, timer, seconds, worker, _whose(handler, arguments))
        if handler.hears_of_end:  # in here, as above
            await _tell_async(handler, context, arguments, outcome)
        return outcome
    if handler.hears_of_end:
        await _tell_async(handler, context, arguments, outcome)
    return outcome


def _timed_out_or_raised(
    job: ClaimedJob,
    exc: BaseException,
    timer: asyncio.Timeout | None,
    seconds: float | None,
    worker: str,
    handler: Handler | None,
) -> Outcome:
    if isinstance(exc, TimeoutError) and timer is not None and timer.expired():
        error = f"timed out after {seconds:g} s"
        return verdict.failed(job, error, worker=worker, outcome="timed_out", class_name="TimeoutError")
    return verdict.raised(job, exc, worker=worker, handler=handler)


def _whose(handler: Handler, arguments: dict[str, object] | None) -> Handler | None:
    """The handler, if the exception came out of it: its arguments were there."""
    return None if arguments is None else handler


def timeout_of(job: ClaimedJob, handler: Handler) -> float | None:
    """The seconds a run of this job may take from its start: its own, or its kind's."""
    if job.metadata:
        try:
            seconds = json.loads(job.metadata)["awa:timeout"]
        except (ValueError, KeyError, RecursionError):
            pass
        else:
            if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0:
                return float(min(seconds, 31_536_000))
    timeout = handler.timeout
    return None if timeout is None else timeout.total_seconds()


def _tell(
    handler: Handler, context: JobContext | None, arguments: dict[str, object] | None, outcome: Outcome
) -> None:
    """Tell the handler how its run ended; whatever it makes of that, the outcome stands."""
    try:
        handler.ended(context, arguments, outcome)
    except BaseException:
        logger.exception(
            "job %s: what follows its end failed",
            outcome.attempt.job_id,
            extra={"job_id": outcome.attempt.job_id, "kind": handler.kind},
        )


async def _tell_async(
    handler: Handler, context: JobContext | None, arguments: dict[str, object] | None, outcome: Outcome
) -> None:
    try:
        await sync_to_async(_tell)(handler, context, arguments, outcome)
    except BaseException:
        logger.exception("job %s: what follows its end was ended", outcome.attempt.job_id)


def _call(handler: Handler | Surrounded, context: JobContext | None, arguments: dict[str, object]) -> object:
    """What the handler returns; a process that it forked goes no further than this."""
    depth = forks.depth
    try:
        value = handler.call(context, arguments)
    except BaseException as exc:
        if forks.depth != depth:
            forks.leave(exc)
        raise
    if forks.depth != depth:
        forks.leave(None)
    return value


def _run_atomic(
    job: ClaimedJob,
    handler: Handler | Surrounded,
    context: JobContext | None,
    arguments: dict[str, object],
    worker: str,
    begin_by: float,
) -> Outcome:
    """The handler and its completion in one transaction: its database effects happen exactly once."""
    settings = get_settings()
    alias = settings.database
    with _transaction(job, alias):
        if time.monotonic() >= begin_by:  # a dead connection, or a new one, may have taken its time
            raise _EndsAs(Release(job.key))
        depth = len(connections[alias].atomic_blocks)
        outcome = _returned(job, handler, _call(handler, context, arguments), worker, settings)
        left_open = connections[alias].atomic_blocks[depth:]
        if left_open:
            # The end of this block would be that of a savepoint, and commit nothing.
            error = RuntimeError("the handler left an atomic block of its own open: its work is rolled back")
            for block in reversed(left_open):
                block.__exit__(RuntimeError, error, None)
            raise error
        if not isinstance(outcome, Completion):
            raise _EndsAs(outcome)
        if outcome.delete:
            done = finalize.complete_and_delete(connections[alias], [outcome.attempt])
        else:
            done = finalize.complete(connections[alias], [outcome])
        if not done:
            # Sent again on its own it is found stale, and counted so.
            raise _EndsAs(outcome)
        failpoints.hit("before_commit")
    return outcome


@contextmanager
def _transaction(job: ClaimedJob, alias: str) -> Iterator[None]:
    """``atomic``, after whose commit nothing is raised: the job is completed, whatever on_commit ran."""
    committed: list[bool] = []
    try:
        with committing(alias), transaction.atomic(using=alias):
            transaction.on_commit(lambda: committed.append(True), using=alias)  # before the handler's own
            yield
    except BaseException:
        if not committed:
            raise
        logger.exception(
            "job %s is completed, but what it gave to on_commit failed",
            job.id,
            extra={"job_id": job.id, "run_lease": job.run_lease, "kind": job.kind},
        )


class _EndsAs(Exception):
    """The attempt ends as this. It rolls back an atomic handler that returned Snooze, RetryAfter or
    Cancel, or whose lease is over."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


async def _prepared(
    job: ClaimedJob, prepare: Callable[[], Awaitable[None]] | None, seconds: float | None
) -> str:
    """Its arguments, after what has to be done before, on the one thread that async handlers share.

    That another one keeps the thread busy for so long is no fault of the job.
    """
    patience = asyncio.timeout(seconds)
    try:
        async with patience:
            if prepare is not None:
                await prepare()
            return await sync_to_async(_read_args)(job) if job.args is None else job.args
    except TimeoutError as exc:
        if not patience.expired():
            raise
        logger.warning(
            "job %s: another one keeps the thread of async handlers' sync_to_async busy, it is put back",
            job.id,
            extra={"job_id": job.id, "run_lease": job.run_lease, "kind": job.kind},
        )
        raise _EndsAs(verdict.postponed(job)) from exc


def _read_args(job: ClaimedJob) -> str:
    """Arguments too large to come with the claim, read as the handler's own queries would be.

    On this thread's connection of the queue's alias. A database that is away is no fault of the job.
    """
    try:
        args = claimed_args(connections[get_settings().database], job.key)
    except Error as exc:
        if exc.__cause__ is None or not is_connection_error(exc.__cause__):
            raise
        logger.warning(
            "job %s: its arguments cannot be read now, it is put back: %s",
            job.id,
            exc,
            extra={"job_id": job.id, "run_lease": job.run_lease, "kind": job.kind},
        )
        raise _EndsAs(verdict.postponed(job)) from exc
    if args is None:
        # Its run is over: a release is found stale, and counted so.
        raise _EndsAs(Release(job.key))
    return args


def _returned(
    job: ClaimedJob, handler: Handler | Surrounded, value: object, worker: str, settings: AwaSettings
) -> Outcome:
    if value is not None:
        if isinstance(value, _UNBEGUN):
            raise _unbegun(value)
        outcome = verdict.returned(job, value, worker=worker)
        if outcome is not None:
            return outcome
    result = encode_result(value) if handler.keep_result else None
    delete = not settings.retention.of(job.queue, JobState.COMPLETED) and job.kind != BULK_KIND
    return Completion(job.key, result, delete)


def _unbegun(
    value: CoroutineType[Any, Any, Any] | GeneratorType[Any, Any, Any] | AsyncGeneratorType[Any, Any],
) -> TypeError:
    if isinstance(value, CoroutineType):
        value.close()  # or Python warns that nobody awaited it
    return TypeError(
        f"the handler returned a {type(value).__name__} ({value.__qualname__}) in place of running it: "
        "a decorator that is no async function itself hides that it wraps one, or a generator"
    )


def _context(
    job: ClaimedJob,
    handler: Handler,
    worker: str,
    cancelled: Callable[[], bool],
    report: Callable[[dict[str, JSON]], None],
) -> JobContext:
    now = datetime.now(UTC)
    seconds = timeout_of(job, handler)
    progress = json.loads(job.progress) if job.progress else None
    return JobContext(
        job_id=job.id,
        kind=job.kind,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        run_lease=job.run_lease,
        deadline=None if seconds is None else now + timedelta(seconds=seconds),
        metadata=json.loads(job.metadata) if job.metadata else {},
        worker=worker,
        started_at=now,
        checkpoint=progress.get("checkpoint") if isinstance(progress, dict) else None,
        cancelled=cancelled,
        report=report,
    )
