"""List jobs that match, newest first, in looks that are bounded however few match."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from awa_django.states import DEFERRED_STATES, JobState
from awa_django.storage._sql import Connection, fetch

# States that jobs_hot_attention knows.
_RARE_STATES = frozenset({JobState.FAILED, JobState.CANCELLED, JobState.WAITING_EXTERNAL})


# Rows of each table that a list looks through where no index has just those that are wanted, unless it is
# told to go on: what a second is enough for. The lists of the admin stop there, too.
WINDOW = 100_000


class Wanted(NamedTuple):
    """Which jobs: None is any, and the tags are all there."""

    states: frozenset[JobState] | None = None
    kind: str | None = None
    queue: str | None = None
    tags: tuple[str, ...] = ()


class ListedJob(NamedTuple):
    """A job as a list shows it: nothing of its data."""

    id: int
    state: str
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    attempted_at: datetime | None
    finalized_at: datetime | None
    tags: list[str]


class Look(NamedTuple):
    """The jobs that were found, newest first; ``before_id`` is where to go on, None at the end."""

    jobs: list[ListedJob]
    before_id: int | None


def list_jobs(connection: Connection, wanted: Wanted, *, before_id: int, row_count: int, limit: int) -> Look:
    """The next jobs below ``before_id`` that match, ``limit`` at most, of ``row_count`` rows of each table.

    One snapshot of both tables: a job that moves between them is seen once.
    """
    states = frozenset(JobState) if wanted.states is None else wanted.states
    # Where others than the states with an index are wanted, those are found among them.
    in_hot = bool(states - _RARE_STATES - DEFERRED_STATES - {JobState.RUNNING})
    rows = fetch(
        connection,
        "list_jobs",
        before_id=before_id,
        row_count=row_count,
        row_limit=limit + 1,
        in_hot=in_hot,
        in_running=not in_hot and JobState.RUNNING in states,
        in_deferred=bool(states & DEFERRED_STATES),
        rare_states=[] if in_hot else _names(states & _RARE_STATES),
        states=None if wanted.states is None else _names(states),
        kind=wanted.kind,
        queue=wanted.queue,
        tags=list(wanted.tags) or None,
    )
    looked_to: int | None = rows[0][0]
    jobs = [ListedJob._make(row[1:]) for row in rows if row[1] is not None]
    if len(jobs) > limit:
        return Look(jobs[:limit], jobs[limit - 1].id)
    return Look(jobs, looked_to)


def _names(states: Iterable[JobState]) -> list[str]:
    return sorted(states)
