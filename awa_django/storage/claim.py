"""Claim: available -> running, under a lease that only this claim has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from awa_django.storage._sql import Connection, explain, fetch
from awa_django.storage.plan import plan_in_order, planned_by_index
from awa_django.storage.rows import Attempt, ClaimedJob

# A look at a queue costs as much as some more jobs of it: of many queues a small claim takes a few.
LEAST_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for: ``limits`` is queue -> at most so many, ``total`` bounds their sum.

    ``timeouts`` is a JSON object of kind -> seconds, ``hold`` the seconds that a claimed job may
    wait here before it starts: their sum is the backstop ``deadline_at``. Jobs of ``aging_kinds`` come
    with their age in the metadata (``awa:age``, in seconds), as do those with a ``max_age`` of their own.
    """

    limits: Mapping[str, int]
    total: int
    worker: str
    timeouts: str = "{}"
    hold: float = 0.0
    excluded_kinds: Sequence[str] = field(default=())
    aging_kinds: Sequence[str] = field(default=())

    @property
    def share(self) -> int:
        """How many jobs each queue gives before any of them gives more."""
        return max(-(-self.total // max(len(self.limits), 1)), LEAST_SHARE)


class Place(NamedTuple):
    """A place in the order of a queue's available jobs, which is that of the index."""

    priority: int
    run_at: datetime
    job_id: int


LOWEST_PRIORITY = 102
BEGINNING = Place(-99, datetime(1, 1, 2, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class Claimed:
    """``places`` are those of the jobs if asked for; ``page_count`` is what was read of the claim index."""

    jobs: list[ClaimedJob]
    places: list[Place]
    page_count: int


def claim(connection: Connection, request: ClaimRequest) -> list[ClaimedJob]:
    """Claim due jobs, best (priority, run_at, id) first; one statement for all queues."""
    return claim_and_measure(connection, request).jobs


def claim_and_measure(connection: Connection, request: ClaimRequest) -> Claimed:
    """Claim as ``claim`` does, and count the pages."""
    if len(request.limits) == 1:
        rows = fetch(connection, "claim_queue", **_values_of_one_queue(request))
    else:
        rows = fetch(connection, "claim", **_values(request), share=request.share)
    return Claimed([ClaimedJob._make(row[:9]) for row in rows], [], rows[0][9] if rows else 0)


def explain_claim(connection: Connection, request: ClaimRequest) -> dict[str, Any]:
    """The plan of that claim, as EXPLAIN gives it in JSON; nothing is claimed."""
    if len(request.limits) == 1:
        return explain(connection, "claim_queue", **_values_of_one_queue(request))
    return explain(connection, "claim", **_values(request), share=request.share)


def claim_behind(
    connection: Connection, request: ClaimRequest, places: Mapping[str, Sequence[Place]]
) -> Claimed:
    """Claim jobs that stand behind a place of their queue and have its priority.

    ``BEGINNING`` has all the queue's jobs behind it. One queue gives all it can before the next does.
    """
    behind = [(queue, place) for queue in request.limits for place in sorted(places[queue])]
    rows = fetch(
        connection,
        "claim_behind",
        **_values(request),
        place_queues=[queue for queue, _ in behind],
        after_priorities=[place.priority for _, place in behind],
        after_run_ats=[place.run_at for _, place in behind],
        after_ids=[place.job_id for _, place in behind],
        last_priorities=[LOWEST_PRIORITY if place == BEGINNING else place.priority for _, place in behind],
    )
    return Claimed(
        [ClaimedJob._make(row[:9]) for row in rows],
        [Place(row[10], row[11], row[0]) for row in rows],
        rows[0][9] if rows else 0,
    )


def left_behind(
    connection: Connection,
    queue: str,
    places: Sequence[Place],
    excluded_kinds: Sequence[str],
    *,
    since: Collection[Place] = (),
    of_known: bool = True,
    of_others: bool = True,
) -> tuple[list[Place], int]:
    """Places right before the jobs that ``claim_behind`` would not find: the first of each priority, and the
    first of those between that have no place. And how many pages of the claim index were read.

    A priority with a place in ``since`` is searched from there only; those that have a place, or the others,
    may be left out. In a transaction it takes the right plan whatever the statistics say.
    """
    plan_in_order(connection)
    priorities = sorted(place.priority for place in places)
    begins = {place.priority: place for place in since}
    ends = list(places) if of_known else []
    starts = [begins.get(place.priority, BEGINNING) for place in ends]
    rows = fetch(
        connection,
        "left_behind",
        queue=queue,
        priorities=[place.priority for place in ends],
        run_ats=[place.run_at for place in ends],
        ids=[place.job_id for place in ends],
        since_run_ats=[place.run_at for place in starts],
        since_ids=[place.job_id for place in starts],
        after_priorities=[BEGINNING.priority, *priorities] if of_others else [],
        before_priorities=[*priorities, LOWEST_PRIORITY + 1] if of_others else [],
        excluded_kinds=list(excluded_kinds),
    )
    *found, (_, _, _, page_count) = rows
    return [Place(priority, run_at, job_id - 1) for priority, run_at, job_id, _ in found], page_count


def newest_left_behind(
    connection: Connection,
    places: Mapping[str, Sequence[Place]],
    excluded_kinds: Sequence[str],
    *,
    newer_than: int | None,
) -> tuple[dict[str, list[Place]], int]:
    """As ``left_behind`` for all queues, but only jobs whose id is higher (None: no job at all), wherever
    they stand. And the highest id that was given out.
    """
    known = [(queue, place) for queue, those in places.items() for place in those]
    with planned_by_index(connection):
        rows = fetch(
            connection,
            "newest_left_behind",
            newer_than=newer_than,
            queues=[queue for queue, _ in known],
            priorities=[place.priority for _, place in known],
            run_ats=[place.run_at for _, place in known],
            ids=[place.job_id for _, place in known],
            excluded_kinds=list(excluded_kinds),
        )
    *jobs, (_, _, _, highest_id) = rows
    found: dict[str, list[Place]] = {}
    for queue, priority, run_at, job_id in jobs:
        found.setdefault(queue, []).append(Place(priority, run_at, job_id - 1))
    return found, highest_id


def claimable(connection: Connection, request: ClaimRequest) -> list[int]:
    """The ids that ``claim`` would take now, paused queues included; nothing is locked."""
    rows = fetch(
        connection,
        "claimable",
        queues=list(request.limits),
        limits=list(request.limits.values()),
        total=request.total,
        share=request.share,
        excluded_kinds=list(request.excluded_kinds),
    )
    return [job_id for (job_id,) in rows]


def claim_one(connection: Connection, job_id: int, request: ClaimRequest) -> ClaimedJob | None:
    """Claim this job if it is due and its queue is not paused; None if it is not to be had."""
    rows = fetch(
        connection,
        "claim_one",
        job_id=job_id,
        worker=request.worker,
        timeouts=request.timeouts,
        hold=request.hold,
        aging_kinds=list(request.aging_kinds),
    )
    return ClaimedJob._make(rows[0]) if rows else None


def claimed_args(connection: Connection, attempt: Attempt) -> str | None:
    """The arguments that were too large for the claim, as JSON text; None: the run is over."""
    rows = fetch(connection, "claimed_args", job_id=attempt.job_id, run_lease=attempt.run_lease)
    return rows[0][0] if rows else None


def quarantine(connection: Connection, job_id: int, entry: str) -> bool:
    """Cancel an available job whose row refuses every claim; False if it has moved on."""
    return bool(fetch(connection, "quarantine", job_id=job_id, entry=entry))


def _values(request: ClaimRequest) -> dict[str, object]:
    return {
        "queues": list(request.limits),
        "limits": list(request.limits.values()),
        "total": request.total,
        "worker": request.worker,
        "timeouts": request.timeouts,
        "hold": request.hold,
        "aging_kinds": list(request.aging_kinds),
        "excluded_kinds": list(request.excluded_kinds),
    }


def _values_of_one_queue(request: ClaimRequest) -> dict[str, object]:
    [(queue, limit)] = request.limits.items()
    return {**_values(request), "queue": queue, "total": min(limit, request.total)}
