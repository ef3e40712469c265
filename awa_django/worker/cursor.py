"""ClaimCursor and DueCursor: not to walk over the same dead entries of an index again and again.

A claimed job leaves a dead entry at the head of its queue, a promoted one at the head of the deferred
jobs. VACUUM takes them away, but not while somebody's snapshot is older: then each claim from the head
walks over all that were ever claimed. So claims count the pages they read, and a queue with a long walk
is searched behind the last job of each priority, and as a whole only now and then: what was retried,
released, or committed late lies before. A scout does that beside the claims (scout.py), or else a claim.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from awa_django.storage import promote
from awa_django.storage._sql import Connection
from awa_django.storage.claim import (
    BEGINNING,
    LOWEST_PRIORITY,
    ClaimRequest,
    Place,
    claim_and_measure,
    claim_behind,
)
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
# A claim ends at 8 MiB of arguments as they are stored (claim.sql); numbers are an eighth of that as text.
LARGEST_ARGS = 2**20
# Seconds that a scout's next search may be late before a claim does it, beyond three times its duration.
LATE = 1.0


class ClaimCursor:
    """Where in each queue the claims of one process are. Used by the claimer, and by its scout."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Of the queues with a long walk: until when they rest.
        self._whole_at: dict[str, float] = {}
        # Behind which job of each of its priorities a queue is gone on with.
        self._places: dict[str, dict[int, Place]] = {}
        # To which place of a priority the next claim has to go back: somebody was found behind it, or the
        # claim that went back took all that it could.
        self._back: dict[str, dict[int, Place]] = {}
        # Until when that waits. What is found may be locked, and the walk from there long, each time.
        self._back_at: dict[str, float] = {}
        self._complete_at: float | None = None

    @property
    def complete_in(self) -> float | None:
        """Seconds until what the last claim left out is searched; None when it searched all of its queues."""
        return None if self._complete_at is None else max(self._complete_at - self._clock(), 0.0)

    def claim(self, connection: Connection, request: ClaimRequest) -> list[ClaimedJob]:
        """Claim as ``storage.claim`` does; but a queue that rests is searched behind its places only."""
        now = self._clock()
        with self._lock:
            resting = {
                queue: self._whole_at[queue]
                for queue in request.limits
                if queue in self._places and now < self._whole_at[queue]
            }
            backs = {queue: self._back_at[queue] for queue in resting if self._must_wait(queue, now)}
            places = {
                queue: self._places_of(queue, is_back=queue not in backs) if queue in resting else [BEGINNING]
                for queue in request.limits
            }
            is_long = not self._whole_at.keys().isdisjoint(request.limits)
        self._complete_at = min([*resting.values(), *backs.values()], default=None)
        if is_long:
            claimed = claim_behind(connection, request, places)
        else:
            claimed = claim_and_measure(connection, request)
        reached = _reached(request, claimed.jobs)
        walk = claimed.page_count - ORDINARY_PAGES * sum(map(len, places.values()))
        # A claim that found nothing has counted nothing.
        was_long = walk > SHORT_WALK if claimed.jobs else None
        seconds = self._clock() - now
        last: dict[str, dict[int, Place]] = {}
        for job, place in zip(claimed.jobs, claimed.places, strict=False):
            last.setdefault(job.queue, {})[place.priority] = place  # in their order: the last one stays
        counts = Tally(job.queue for job in claimed.jobs)
        is_cut = len(claimed.jobs) >= request.total or (is_long and _may_be_cut_by_size(claimed.jobs))
        with self._lock:
            if whole := reached - resting.keys():
                self._rest(whole, seconds, was_long)
            for queue in reached & self._whole_at.keys():
                is_full = is_cut or counts[queue] >= request.limits[queue]
                has_gone_back = self._go_on(
                    queue, places[queue], last.get(queue, {}), is_full=is_full, is_short=was_long is False
                )
                if has_gone_back and was_long is not False:
                    self._back_at[queue] = self._clock() + rest_after(seconds)
        return claimed.jobs

    @property
    def leaves_out(self) -> bool:
        """Whether claims leave something out."""
        return bool(self._places)

    def left_out(self) -> dict[str, list[Place]]:
        """The places behind which claims search a queue, for somebody else to search what is before them."""
        with self._lock:
            return {queue: list(places.values()) for queue, places in self._places.items()}

    def was_searched(
        self, queue: str, found: Collection[Place], *, seconds: float, is_long: bool | None
    ) -> None:
        """What is before its places was searched as a whole in so many seconds, now or (``is_long`` is None)
        when it last was; the first jobs that were ``found``.

        One that is found soon ends a search, which then says nothing about how long the walk is: a claim
        has to tell.
        """
        with self._lock:
            if queue not in self._places:
                return
            if is_long is False and not found:
                self._is_quick(queue)
                return
            back = self._back.setdefault(queue, {})
            for place in found:
                back[place.priority] = min(place, back.get(place.priority, place))
            if is_long is not False:
                self._whole_at[queue] = self._clock() + rest_after(seconds) + 3 * seconds + LATE

    def was_not_searched(self) -> None:
        """Nobody else searches: the next claim has to."""
        with self._lock:
            self._whole_at = dict.fromkeys(self._whole_at, self._clock())

    def _must_wait(self, queue: str, now: float) -> bool:
        return bool(self._back.get(queue)) and now < self._back_at.get(queue, 0.0)

    def _places_of(self, queue: str, *, is_back: bool) -> list[Place]:
        places = dict(self._places[queue])
        if is_back:
            for priority, place in self._back.get(queue, {}).items():
                places[priority] = min(place, places.get(priority, place))
        return list(places.values())

    def _rest(self, queues: Collection[str], seconds: float, is_long: bool | None) -> None:
        """Decide when the queues just searched as a whole are searched so again; None: as before."""
        for queue in queues:
            if is_long or (is_long is None and queue in self._whole_at):
                self._whole_at[queue] = self._clock() + rest_after(seconds)
            else:
                self._is_quick(queue)

    def _is_quick(self, queue: str) -> None:
        self._whole_at.pop(queue, None)
        self._places.pop(queue, None)
        self._back.pop(queue, None)
        self._back_at.pop(queue, None)

    def _go_on(
        self,
        queue: str,
        begun: Collection[Place],
        last: Mapping[int, Place],
        *,
        is_full: bool,
        is_short: bool,
    ) -> bool:
        """Where to go on when a claim has ``begun`` there and taken these ``last``; whether it went back.

        What was searched to its end goes on where nobody has been, not behind somebody found far back: each
        claim would make that walk, until the next job of this priority. What was found meanwhile, or of a
        priority that a full claim did not get to, is left to the next one.
        """
        places, back = self._places.get(queue, {}), self._back.setdefault(queue, {})
        end = max(last) if is_full and last else LOWEST_PRIORITY + 1
        starts = {place.priority: place for place in begun}
        has_gone_back = False
        for priority, place in list(back.items()):
            start = starts.get(priority, starts.get(BEGINNING.priority))
            if start is not None and start <= place and priority <= end:
                del back[priority]
                has_gone_back = end > LOWEST_PRIORITY
        for priority, place in last.items():
            is_behind = place < places.get(priority, place)
            if is_behind and priority == end:
                back[priority] = min(place, back.get(priority, place))
            elif is_short or not is_behind:
                self._places.setdefault(queue, {})[priority] = place
        return has_gone_back


def rest_after(seconds: float) -> float:
    """How long a queue that took so many seconds to search is not searched as a whole."""
    return min(seconds * REST, LONGEST_REST)


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


def _may_be_cut_by_size(jobs: Collection[ClaimedJob]) -> bool:
    """Whether the arguments may be as much as a claim takes; a job that comes without them has large ones."""
    return any(job.args is None for job in jobs) or sum(len(job.args or "") for job in jobs) >= LARGEST_ARGS


def _reached(request: ClaimRequest, jobs: Collection[ClaimedJob]) -> set[str]:
    """The queues that the claim looked at: all, or those up to the last one that gave something."""
    queues = list(request.limits)
    if len(jobs) < request.total:
        return set(queues)
    gave = {job.queue for job in jobs}
    while queues and queues[-1] not in gave:
        queues.pop()
    return set(queues)
