"""The history of each job, from the transitions that triggers wrote in the transactions that made them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

import psycopg

ENDED = {"completed", "failed", "cancelled"}
UNFINISHED = {"scheduled", "available", "running", "retryable"}

# What a transition does to ``attempt``; every other one leaves it as it is.
ATTEMPTS: dict[tuple[str | None, str | None], int] = {
    ("available", "running"): 1,
    ("running", "available"): -1,  # claimed and never started
    ("running", "scheduled"): -1,  # snoozed
}

# From a state (None: it did not exist) to a state (None: deleted).
LEGAL: dict[str | None, set[str | None]] = {
    None: {"available", "scheduled"},
    "scheduled": {"available", "cancelled", None},
    "available": {"running", "cancelled", "scheduled", "failed", None},
    "running": {"completed", "retryable", "scheduled", "available", "failed", "cancelled", None},
    "retryable": {"available", "cancelled", None},
    "completed": set(),
    "failed": set(),
    "cancelled": set(),
}


class Event(NamedTuple):
    """One row of ``soak.transitions``."""

    seq: int
    transaction_id: int
    at: float
    job_id: int
    was: str | None
    is_now: str | None
    run_lease: int
    attempt: int
    max_attempts: int
    kind: str
    token: str | None
    unique_key: str | None


class Edge(NamedTuple):
    """One transition of a job. ``at`` is in seconds of the machine's monotonic clock."""

    was: str | None
    is_now: str | None
    run_lease: int
    attempt: int
    at: float

    @property
    def completes(self) -> bool:
        """Completed, or deleted because it completed."""
        return self.is_now == "completed" or (self.was == "running" and self.is_now is None)


@dataclass(slots=True)
class History:
    """All that happened to one job."""

    job_id: int
    kind: str
    token: str | None
    max_attempts: int
    unique_key: str | None = None
    edges: list[Edge] = field(default_factory=list)

    @property
    def end(self) -> str | None:
        """The state it is in; None: it is deleted."""
        return self.edges[-1].is_now

    @property
    def completions(self) -> list[Edge]:
        return [edge for edge in self.edges if edge.completes]

    @property
    def refund_count(self) -> int:
        """How often an attempt was given back: a start more than its attempts allow."""
        count, attempt = 0, 0
        for edge in self.edges:
            count += edge.was == "running" and edge.attempt < attempt
            attempt = edge.attempt
        return count

    @property
    def lifetime(self) -> tuple[float, float]:
        """From its first transition to the one that ended it; infinity while it has not ended."""
        last = self.edges[-1]
        return self.edges[0].at, inf if last.is_now in UNFINISHED else last.at

    def lease_end(self, run_lease: int) -> Edge | None:
        """The transition with which that run was over for the database."""
        for edge in self.edges:
            if edge.was == "running" and edge.run_lease == run_lease:
                return edge
        return None

    def wrong_edges(self) -> list[str]:
        """What may not be: illegal moves, gaps between them, leases and attempts that are miscounted."""
        wrong = []
        state: str | None = None
        lease, attempt = 0, 0
        for edge in self.edges:
            if edge.was != state:
                wrong.append(f"job {self.job_id} left {edge.was}, but was {state}")
            if edge.is_now not in LEGAL[edge.was]:
                wrong.append(f"job {self.job_id} went from {edge.was} to {edge.is_now}")
            attempt += ATTEMPTS.get((edge.was, edge.is_now), 0)
            if edge.attempt != attempt:
                wrong.append(
                    f"job {self.job_id} went from {edge.was} to {edge.is_now} with attempt {edge.attempt}, "
                    f"not {attempt}"
                )
                attempt = edge.attempt
            lease += edge.is_now == "running"
            if edge.run_lease != lease:
                wrong.append(f"job {self.job_id} has lease {edge.run_lease} at claim {lease}")
            state = edge.is_now
        return wrong


def read(connection: psycopg.Connection[Any], clock_offset: float) -> dict[int, History]:
    """Job id -> history. ``clock_offset`` is the wall clock's reading minus the monotonic one's."""
    cursor = connection.execute(
        "SELECT seq, transaction_id::text::bigint, extract(epoch FROM at)::float8, job_id, was::text, "
        "is_now::text, run_lease, attempt, max_attempts, kind, token, unique_key "
        "FROM soak.transitions ORDER BY job_id, seq"
    )
    events = (Event(*row) for row in cursor)
    found = {}
    for job_id, group in groupby(events, key=attrgetter("job_id")):
        own = list(group)
        first = own[0]
        edges = list(edges_of(own, clock_offset))
        found[job_id] = History(job_id, first.kind, first.token, first.max_attempts, first.unique_key, edges)
    return found


def edges_of(events: list[Event], clock_offset: float) -> Iterator[Edge]:
    """A move between the tables is a delete and an insert in one transaction, in either order."""
    for _, group in groupby(events, key=attrgetter("transaction_id")):
        waiting: Event | None = None
        for event in group:
            if event.was is not None and event.is_now is not None:
                yield _edge(event.was, event, clock_offset)
            elif waiting is None:
                waiting = event
            elif event.is_now is None:
                yield _edge(event.was, waiting, clock_offset)
                waiting = None
            else:
                yield _edge(waiting.was, event, clock_offset)
                waiting = None
        if waiting is not None:
            yield _edge(waiting.was, waiting, clock_offset)


def _edge(was: str | None, event: Event, clock_offset: float) -> Edge:
    return Edge(was, event.is_now, event.run_lease, event.attempt, event.at - clock_offset)
