"""Jobs chosen by a filter: their options on the command line, and the walk through all that match."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

from awa_django.management.status import PATIENCE
from awa_django.operations import BATCH, LARGEST_ID
from awa_django.operations.change import BULK_KIND
from awa_django.reading import bounded
from awa_django.states import JobState
from awa_django.storage.listing import WINDOW, ListedJob, Look, Wanted, list_jobs

# Rows looked at per statement, of each table: some 10 ms, however few match.
LOOK = 10_000


def add_filter(parser: ArgumentParser, states: frozenset[JobState] = frozenset(JobState)) -> None:
    """The options of a filter."""
    parser.add_argument(
        "--state",
        action="append",
        choices=sorted(map(str, states)),
        help="of this state; may be given several times",
    )
    parser.add_argument("--kind", help="of this kind")
    parser.add_argument("--queue", metavar="NAME", help="in this queue")
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="with this tag; given several times: with all of them"
    )


def read_filter(options: dict[str, Any], states: frozenset[JobState] | None = None) -> Wanted:
    """What the options ask for; ``states`` where they name none."""
    given = frozenset(map(JobState, options["state"])) if options["state"] else states
    return Wanted(given, _text(options["kind"]), _text(options["queue"]), tuple(options["tag"] or ()))


def is_any(options: dict[str, Any]) -> bool:
    """Whether the options of the filter ask for nothing in particular."""
    return not any(options[name] for name in ("state", "kind", "queue", "tag"))


def find(
    alias: str, wanted: Wanted, *, before_id: int | None, limit: int, longest: timedelta | None = None
) -> Look:
    """The newest jobs that match, looked for until there are enough.

    It ends with WINDOW rows of each table, or, with ``longest``, when that time is over.
    """
    jobs: list[ListedJob] = []
    ends_at = None if longest is None else time.monotonic() + longest.total_seconds()
    place = LARGEST_ID if before_id is None else before_id
    for look_count in count(1):
        found = _look(alias, wanted, before_id=place, limit=limit - len(jobs))
        jobs += found.jobs
        is_over = look_count * LOOK >= WINDOW if ends_at is None else time.monotonic() >= ends_at
        if found.before_id is None or len(jobs) >= limit or is_over:
            break
        place = found.before_id
    return Look(jobs, found.before_id)


def walk(alias: str, wanted: Wanted, *, below: int) -> Iterator[list[ListedJob]]:
    """All jobs that match with an id below that one, newest first, in batches.

    Jobs that do such a walk themselves, for the admin, are left out unless they are what is looked for.
    """
    place: int | None = below
    while place is not None:
        found, place = _look(alias, wanted, before_id=place, limit=BATCH)
        if jobs := [job for job in found if job.kind != BULK_KIND or wanted.kind == BULK_KIND]:
            yield jobs


def count_matching(alias: str, wanted: Wanted, *, below: int, cap: int) -> int:
    """How many jobs match; beyond the cap it counts no further."""
    found = 0
    for jobs in walk(alias, wanted, below=below):
        found += len(jobs)
        if found > cap:
            break
    return found


def _look(alias: str, wanted: Wanted, *, before_id: int, limit: int) -> Look:
    with bounded(alias, longest=PATIENCE) as connection:
        return list_jobs(connection, wanted, before_id=before_id, row_count=LOOK, limit=limit)


def _text(value: str | None) -> str | None:
    return value or None
