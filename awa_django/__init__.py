"""A background job queue inside the project's own PostgreSQL."""

from __future__ import annotations

from awa_django.context import JobContext
from awa_django.enqueue import Enqueued
from awa_django.enqueue.apart import own_transaction
from awa_django.errors import (
    AwaError,
    ConfigurationError,
    InvalidJob,
    JobNotFound,
    ScheduleNotFound,
    SchemaMismatch,
    TerminalError,
    UniqueConflict,
    UnknownJobKind,
)
from awa_django.jobs import Job, JobSnapshot, enqueue_many, job, periodic
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.retry import Exponential, Fixed, Linear, RetryPolicy
from awa_django.states import JobState
from awa_django.unique import Unique

__all__ = [
    "AwaError",
    "Cancel",
    "ConfigurationError",
    "Enqueued",
    "Exponential",
    "Fixed",
    "InvalidJob",
    "Job",
    "JobContext",
    "JobNotFound",
    "JobSnapshot",
    "JobState",
    "Linear",
    "RetryAfter",
    "RetryPolicy",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Snooze",
    "TerminalError",
    "Unique",
    "UniqueConflict",
    "UnknownJobKind",
    "enqueue_many",
    "job",
    "own_transaction",
    "periodic",
]
