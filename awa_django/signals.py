"""Signals: how each run of a job ended, told in the worker once the database has it.

``sender`` is what was declared (the Job, or a task of django.tasks), ``run`` an ``EndedRun``. They are
sent by ``send_robust``: what a receiver raises is logged, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.dispatch import Signal

from awa_django.codec import JSON

job_completed = Signal()
job_retried = Signal()
job_snoozed = Signal()
job_failed = Signal()
job_cancelled = Signal()

# By the word that the worker has for the end. What was given back unstarted has not ended.
BY_END: Mapping[str, Signal] = {
    "completed": job_completed,
    "retried": job_retried,
    "snoozed": job_snoozed,
    "failed": job_failed,
    "cancelled": job_cancelled,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """One run of one job, which has ended.

    ``args`` are those that are stored, as plain JSON; None when they were too large to come with the
    claim. ``how`` is the signal's word, or tells more: ``timed_out``, ``discarded``, ``expired``.
    ``error``, ``exception`` (the name of its class) and ``traceback`` are those of a bad end.
    ``again_in`` is the wait before the next run of a job that was retried or snoozed.
    """

    job_id: int
    run_lease: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    worker: str
    args: Mapping[str, JSON] | None = field(repr=False)
    metadata: Mapping[str, JSON] = field(repr=False)
    how: str
    error: str | None = None
    exception: str | None = None
    traceback: str | None = field(default=None, repr=False)
    again_in: timedelta | None = None


def are_heard() -> bool:
    """Whether anybody listens to any of them."""
    return any(signal.receivers for signal in BY_END.values())
