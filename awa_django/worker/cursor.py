"""ClaimCursor and DueCursor: not to walk over the same dead entries of an index again and again.

A claimed job leaves a dead entry at the head of its queue, a promoted one at the head of the deferred
jobs. VACUUM takes them away, but not while somebody's snapshot is older: then each claim from the head
walks over all that were ever claimed. So claims count the pages they read, and a queue with a long walk
is searched behind the last job of each priority, and as a whole only now and then: what was retried,
released, or committed late lies before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from awa_django.storage import promote
from awa_django.storage._sql import Connection
from awa_django.storage.claim import BEGINNING, ClaimRequest, Place, claim_and_measure, claim_behind
from awa_django.storage.rows import ClaimedJob
from awa_django.worker.database import PsycopgConnection, transaction

# Pages of the index that a search reads anyway, for each queue: the way down, and a leaf or two.
ORDINARY_PAGES = 6
# A walk of so many pages more takes 3 ms, where an ordinary claim of 500 jobs takes 15 (170 dead entries a
# page, 0.17 us each). Pages are counted because the time would say more about how busy the machine is.
SHORT_WALK = 100
# A queue with a long walk then rests from being searched as a whole for so many times as long as the search
# took, but never for longer than LONGEST_REST seconds: a better row is left behind no longer than that.
REST = 20.0
LONGEST_REST = 1.0


class ClaimCursor:
    """Where in each queue the claims of one process are. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Of the queues with a long walk: until when they rest.
        self._whole_at: dict[str, float] = {}
        # Behind which job of each of its priorities a queue is gone on with.
        self._places: dict[str, dict[int, Place]] = {}
        self._complete_at: float | None = None

    @property
    def complete_in(self) -> float | None:
        """Seconds until what the last claim left out is searched; None when it searched all of its queues."""
        return None if self._complete_at is None else max(self._complete_at - self._clock(), 0.0)

    def claim(self, connection: Connection, request: ClaimRequest) -> list[ClaimedJob]:
        """Claim as ``storage.claim`` does; but a queue that rests is searched behind its places only."""
        now = self._clock()
        resting = {
            queue: self._whole_at[queue]
            for queue in request.limits
            if queue in self._places and now < self._whole_at[queue]
        }
        self._complete_at = min(resting.values(), default=None)
        if self._whole_at.keys().isdisjoint(request.limits):
            claimed = claim_and_measure(connection, request)
        else:
            places = {
                queue: list(self._places[queue].values()) if queue in resting else [BEGINNING]
                for queue in request.limits
            }
            claimed = claim_behind(connection, request, places)
        whole = _reached(request, claimed.jobs) - resting.keys()
        if whole:
            walk = claimed.page_count - ORDINARY_PAGES * len(request.limits)
            # A claim that found nothing has counted nothing.
            self._rest(whole, self._clock() - now, walk > SHORT_WALK if claimed.jobs else None)
        for job, place in zip(claimed.jobs, claimed.places, strict=False):
            if job.queue in self._whole_at:  # in their order: the last one of each priority stays
                self._places.setdefault(job.queue, {})[place.priority] = place
        return claimed.jobs

    def _rest(self, queues: Collection[str], seconds: float, is_long: bool | None) -> None:
        """Decide when the queues just searched as a whole are searched so again; None: as before."""
        for queue in queues:
            if is_long or (is_long is None and queue in self._whole_at):
                self._whole_at[queue] = self._clock() + min(seconds * REST, LONGEST_REST)
            else:
                self._whole_at.pop(queue, None)
                self._places.pop(queue, None)


class DueCursor:
    """Where in the deferred jobs promotion is. Used by one thread.

    After a long walk a look begins where the last one ended, and at the head again when it has rested,
    for ``longest_rest`` at most: a row may be committed later than it is due, or be locked by somebody.
    """

    def __init__(self, longest_rest: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._longest_rest = longest_rest.total_seconds()
        self._head_at = float("-inf")
        self._left_out_head = False
        self.since: datetime | None = None

    @property
    def complete_in(self) -> float | None:
        """Seconds until what the last look left out is looked at; None when it began at the head."""
        return max(self._head_at - self._clock(), 0.0) if self._left_out_head else None

    def next_due(self, connection: PsycopgConnection) -> float | None:
        """Seconds until the next row is due, negative when overdue, None without one: ``since`` is there."""
        began_at = self._clock()
        self._left_out_head = began_at < self._head_at
        if self._left_out_head:
            with transaction(connection):
                found = promote.next_due(connection, since=self.since)
        else:
            found = promote.next_due(connection)
            if found.page_count > SHORT_WALK:
                ended_at = self._clock()
                self._head_at = ended_at + min((ended_at - began_at) * REST, self._longest_rest)
        self.since = found.now if found.run_at is None else min(found.run_at, found.now)
        return found.seconds


def _reached(request: ClaimRequest, jobs: Collection[ClaimedJob]) -> set[str]:
    """The queues that the claim looked at: all, or those up to the last one that gave something."""
    queues = list(request.limits)
    if len(jobs) < request.total:
        return set(queues)
    gave = {job.queue for job in jobs}
    while queues and queues[-1] not in gave:
        queues.pop()
    return set(queues)
