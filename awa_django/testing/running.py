"""Run jobs on the test's own thread and connection, with the worker's own code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.models import QuerySet
from django.utils import timezone
from psycopg.pq import TransactionStatus

from awa_django import registry
from awa_django.codec import JSON
from awa_django.conf import get_settings
from awa_django.enqueue.options import check_name
from awa_django.errors import AwaError, JobNotFound, UnknownJobKind
from awa_django.models import DeferredJob
from awa_django.signals import BY_END
from awa_django.storage import operate
from awa_django.storage.claim import ClaimRequest, claim, claim_one
from awa_django.storage.heartbeat import progress
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_queues
from awa_django.storage.rows import ClaimedJob, Completion, Outcome
from awa_django.worker import verdict
from awa_django.worker.aging import aging_kinds
from awa_django.worker.attempt import run_attempt, run_attempt_async
from awa_django.worker.notifier import tell
from awa_django.worker.settle import settle

WORKER = "testing"
# More queues than any test has.
QUEUES_AT_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job, and how it ended.

    ``outcome`` is ``completed``, ``retried``, ``snoozed``, ``failed`` or ``cancelled``, or ``stale`` when
    the job was cancelled or deleted while it ran. ``error`` is the text of an attempt that ended badly.
    """

    id: int
    kind: str
    outcome: str
    error: str | None = None
    traceback: str | None = None


def drain(
    queue: str | None = None,
    *,
    until: datetime | timedelta | None = None,
    include_deferred: bool = False,
    max_jobs: int = 1_000,
) -> list[Run]:
    """Run what is due, best first, until nothing is; the runs in their order.

    Jobs that a handler enqueues run too. ``until`` (an instant, or how long from now) runs also what
    falls due by then (scheduled jobs, retries, snoozes), earliest first, without waiting; a job that
    is deferred again on the way waits from the instant at which it ran. ``include_deferred`` runs all
    that is deferred. Paused queues are left alone.

    Raises:
        AssertionError: ``max_jobs`` have run and there are more.
        UnknownJobKind: a job has no handler; it stays available.
        InvalidJob: no queue can have this name.
        ValueError: ``until`` is naive, or something else.
    """
    if queue is not None:
        check_name(queue, "queue")
    connection = connections[get_settings().database]
    horizon = timezone.now() + until if isinstance(until, timedelta) else until
    if horizon is not None and getattr(horizon, "tzinfo", None) is None:
        raise ValueError(f"until must be an aware datetime or a timedelta, not {until!r}")
    ahead = timedelta(0)  # of the database's clock
    runs: list[Run] = []
    while True:
        _promote(queue)
        queues = known_queues(connection, limit=QUEUES_AT_MOST) if queue is None else [queue]
        claimed = claim(connection, _request(queues))
        if not claimed:
            due = _promote_first(queue, horizon) if include_deferred or horizon else None
            if due is None:
                return runs
            ahead = max(ahead, due - database_now(connection))
            continue
        if len(runs) == max_jobs:
            _put_back(claimed[0])
            raise AssertionError(
                f"{max_jobs} jobs have run and there are more: does one enqueue, retry or snooze without end?"
            )
        runs.append(_run(claimed[0]))
        if ahead and runs[-1].outcome in ("retried", "snoozed"):
            _move(runs[-1].id, ahead)


def run_job(job_id: int) -> Run:
    """Run this job now, whatever its ``run_at`` says; how it ended.

    Raises:
        JobNotFound: there is no such job.
        UnknownJobKind: it has no handler.
        AwaError: it does not wait to be run, or its queue is paused.
    """
    connection = connections[get_settings().database]
    operate.run_now(connection, [job_id])
    claimed = claim_one(connection, job_id, _request([]))
    if claimed is None:
        found = operate.locate(connection, [job_id]).get(job_id)
        if found is None:
            raise JobNotFound(job_id)
        raise AwaError(f"job {job_id} cannot be run: it is {found.state}, or its queue is paused")
    return _run(claimed)


def run_available(job_id: int) -> Run | None:
    """Run this job if it may run now; how it ended. Raises: UnknownJobKind."""
    claimed = claim_one(connections[get_settings().database], job_id, _request([]))
    return None if claimed is None else _run(claimed)


def _promote(queue: str | None) -> None:
    """Make due jobs available.

    Due by the real clock (or what froze it): in a test's transaction the database's now() is that of
    its beginning.
    """
    due = _deferred(queue).filter(run_at__lte=timezone.now())
    operate.run_now(connections[get_settings().database], sorted(due.values_list("id", flat=True)))


def _promote_first(queue: str | None, horizon: datetime | None) -> datetime | None:
    """Make the deferred job available that is due first, by the ``horizon``; when it was due."""
    first = _deferred(queue).first()
    if first is None or (horizon is not None and first.run_at > horizon):
        return None
    operate.run_now(connections[get_settings().database], [first.id])
    return first.run_at


def _move(job_id: int, ahead: timedelta) -> None:
    """Have a job that was deferred just now wait from an instant ahead of the database's clock."""
    job = _deferred(None).filter(id=job_id).first()
    if job is not None:
        connection = connections[get_settings().database]
        operate.reschedule_deferred(connection, [job_id], run_at=job.run_at + ahead)


def _deferred(queue: str | None) -> QuerySet[DeferredJob]:
    deferred = DeferredJob.objects.using(get_settings().database).order_by("run_at", "id")
    return deferred if queue is None else deferred.filter(queue=queue)


def _request(queues: list[str]) -> ClaimRequest:
    return ClaimRequest(limits=dict.fromkeys(queues, 1), total=1, worker=WORKER, aging_kinds=aging_kinds())


def _run(job: ClaimedJob) -> Run:
    handler = registry.find(job.kind)
    if handler is None:
        _put_back(job)
        raise UnknownJobKind(job.kind)
    reported: dict[str, JSON] = {}
    outcome: Outcome | None = verdict.not_begun(job, worker=WORKER)
    if outcome is None:
        with _savepoints():
            if handler.is_async:
                # In a copy of the context: asgiref brings back what is set in one.
                outcome = copy_context().run(
                    async_to_sync(run_attempt_async), job, handler, worker=WORKER, report=reported.update
                )
            else:
                outcome = run_attempt(job, handler, worker=WORKER, report=reported.update)
    if outcome is None:  # an atomic handler, committed with its completion
        tell(job, handler, Completion(job.key), worker=WORKER)
        return Run(id=job.id, kind=job.kind, outcome="completed")
    if reported:
        stored = json.loads(job.progress) if job.progress else {}
        progress(_psycopg_connection(), {job.key: json.dumps({**stored, **reported})})
    settlement = settle(_psycopg_connection(), [outcome], worker=WORKER)
    if job.id not in settlement.done:
        return Run(id=job.id, kind=job.kind, outcome="stale")
    outcome = settlement.instead.get(job.id, outcome)
    if verdict.describe(outcome) in BY_END:
        tell(job, handler, outcome, worker=WORKER)
    entry = json.loads(getattr(outcome, "entry", None) or "{}")
    return Run(
        id=job.id,
        kind=job.kind,
        outcome=verdict.describe(outcome),
        error=entry.get("error"),
        traceback=entry.get("traceback"),
    )


def _put_back(job: ClaimedJob) -> None:
    settle(_psycopg_connection(), [verdict.release(job)], worker=WORKER)


def _psycopg_connection() -> Any:
    """The psycopg connection under Django's: in the same transaction."""
    connection = connections[get_settings().database]
    connection.ensure_connection()
    return connection.connection


@contextmanager
def _savepoints() -> Iterator[None]:
    """Keep a handler that breaks its transaction from breaking the test's.

    In production a handler runs in autocommit: what it wrote before it failed is there. So the
    savepoints are rolled back only where the database refuses to go on.
    """
    with ExitStack() as stack:
        blocks = [each for each in connections.all(initialized_only=True) if each.in_atomic_block]
        for connection in blocks:
            block = transaction.atomic(using=connection.alias)
            # As TestCase marks its own, so that a handler may open a durable block inside.
            block._from_testcase = True  # type: ignore[attr-defined]
            stack.enter_context(block)
        yield
        for connection in blocks:
            info = getattr(connection.connection, "info", None)
            if info is not None and info.transaction_status == TransactionStatus.INERROR:
                connection.needs_rollback = True
