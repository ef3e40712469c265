"""The row shapes that storage takes and gives."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from awa_django.states import JobState

# Of a bigint: a larger id is no job's.
LARGEST_ID = 2**63 - 1


class Attempt(NamedTuple):
    """The identity of one run: ``run_lease`` grows by one with each claim and names it for ever."""

    job_id: int
    run_lease: int


class ClaimedJob(NamedTuple):
    """A row as the claim returns it: what a worker needs to run the job and nothing else.

    ``args`` and ``progress`` are JSON text, decoded by the job's own attempt: a value that Python
    cannot represent fails that job alone. ``args`` is None when it is large: the attempt reads it then.
    ``metadata`` is JSON text, or None when it is empty.
    """

    id: int
    run_lease: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    args: str | None
    metadata: str | None
    progress: str | None

    @property
    def key(self) -> Attempt:
        return _attempt(self[:2])


# Attempt's own constructor is written in Python, and this is made for every job.
_attempt = partial(tuple.__new__, Attempt)


class LostRun(NamedTuple):
    """A running row that its worker no longer answers for. ``reason`` is 'heartbeat' or 'deadline'."""

    id: int
    run_lease: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    metadata: str | None
    worker: str | None
    reason: str


class Run(Protocol):
    """A run whose end is judged: a claimed job in its own process, or a lost one."""

    @property
    def id(self) -> int: ...
    @property
    def run_lease(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def metadata(self) -> str | None: ...


class Completion(msgspec.Struct, frozen=True):
    """The handler returned. ``result`` is JSON text, or None when it is not kept."""

    attempt: Attempt
    result: str | None = None
    delete: bool = False
    """Delete the row instead of keeping it (retention 0)."""


class Deferral(msgspec.Struct, frozen=True):
    """Back to the deferred table: a retry, a snooze, or a kind unknown here."""

    attempt: Attempt
    state: JobState
    delay: float
    """Seconds from the database's now()."""
    entry: str | None = None
    """The error entry as JSON text; ``at`` is added by the database."""
    refund: bool = False
    """Give the attempt back: the job did not really try."""
    unknown_kind: bool = False
    aging: bool = False
    """The job has a ``max_age``: keep the instant from which it counts."""


class Ending(msgspec.Struct, frozen=True):
    """Terminal without success: ``failed`` or ``cancelled``."""

    attempt: Attempt
    state: JobState
    entry: str | None = None


class Release(msgspec.Struct, frozen=True):
    """Claimed and never started: available again, the attempt given back."""

    attempt: Attempt


Outcome = Completion | Deferral | Ending | Release
