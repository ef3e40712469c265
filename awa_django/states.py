"""The states of a job: which are hot, which are deferred, which are final."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class JobState(StrEnum):
    """The values of the database enum ``awa.job_state``, in its order."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    RUNNING = "running"
    COMPLETED = "completed"
    RETRYABLE = "retryable"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING_EXTERNAL = "waiting_external"


DEFERRED_STATES = frozenset({JobState.SCHEDULED, JobState.RETRYABLE})
HOT_STATES = frozenset(JobState) - DEFERRED_STATES
TERMINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
UNFINISHED_STATES = frozenset(JobState) - TERMINAL_STATES


def unique_mask(states: Iterable[JobState]) -> str:
    """The ``bit(8)`` literal of a set of states: one bit a state in enum order, ``scheduled`` leftmost."""
    chosen = frozenset(states)
    return "".join("1" if state in chosen else "0" for state in JobState)
