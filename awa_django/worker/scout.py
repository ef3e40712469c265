"""Scout: searches before the places of the claims, beside them, while a search as a whole is a long walk.

What comes late mostly stands near the places: it was due, claimed, or its transaction began, seconds ago.
Or it is new and says that it was due long ago. So what claims have passed lately and what is new is searched
once a second, and all of it as often as it costs little.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from awa_django.logs import get_logger
from awa_django.storage.claim import Place, left_behind, newest_left_behind
from awa_django.worker.cursor import LONGEST_REST, ORDINARY_PAGES, SHORT_WALK, ClaimCursor, rest_after
from awa_django.worker.database import Session, transaction

logger = get_logger(__name__)

# A part is as long as so many pages of the index, half of it at least: 250,000 to 500,000 jobs, 40 to 80 ms.
PART = 3_000
# As a whole a queue is searched when such searches of all queues have rested for so many times as long as
# they took, but for LONGEST_REST_OF_WHOLE seconds at most: behind 400,000 dead entries (0.15 us each) it is
# always the whole, behind 3.5 million every ten seconds.
REST_OF_WHOLE = 15.0
LONGEST_REST_OF_WHOLE = 30.0
# So many seconds after its id was given out a job still counts as new: its transaction ends meanwhile.
NEW = 2.0
# Seconds after an error: until then claims search for themselves.
PAUSE = 10.0
# Seconds that a stop waits for the statement that it has cancelled; where nothing answers, it goes on.
STOP_PATIENCE = 1.0


@dataclass(slots=True)
class _Walk:
    """A queue that is long to search as a whole, which took so many ``seconds``."""

    since: Sequence[Place]
    """Where the part begins that is searched meanwhile: where the claims once were."""
    seconds: float = 0.0
    rests_until: float = 0.0
    others_are_long: bool = False
    """Whether priorities without a place, too, have many dead entries: they then rest with the whole."""
    middle: Sequence[Place] = ()
    """Where the claims were when that part was half as long as it may be: the next one begins there."""

    def took(self, page_count: int, longest: float, places: Sequence[Place]) -> None:
        """Follow the claims, which are at ``places``, after a part of so many pages."""
        if page_count > longest:
            self.since, self.middle = self.middle or places, ()
        elif page_count > longest / 2 and not self.middle:
            self.middle = places


class Scout:
    """A thread, and a connection, that there are only while the cursor leaves something out."""

    def __init__(
        self,
        session: Session,
        cursor: ClaimCursor,
        *,
        excluded_kinds: Callable[[], Collection[str]],
        on_found: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._session = session
        self._cursor = cursor
        self._excluded_kinds = excluded_kinds
        self._on_found = on_found
        self._found: dict[str, set[Place]] = {}
        self._walks: dict[str, _Walk] = {}
        # When looks were made, and the highest id that was given out by then.
        self._highest_ids: deque[tuple[float, int]] = deque()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def go(self) -> None:
        """Search, if there is something to search and it is not under way; called after each claim."""
        if self._cursor.leaves_out and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._serve, name="awa-scout", daemon=True)
            with contextlib.suppress(RuntimeError):  # none is to be had: claims search for themselves
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._session.cancel()
            self._thread.join(STOP_PATIENCE)

    def _serve(self) -> None:
        wait = 0.0
        self._highest_ids.clear()
        while not self._stopping.wait(wait) and self._cursor.leaves_out:
            try:
                wait = self.look()
            except Exception as exc:  # noqa: BLE001  (claims do without)
                if self._stopping.is_set():
                    break
                self._cursor.was_not_searched()
                logger.warning("searching beside the claims failed, they search for themselves: %s", exc)
                wait = PAUSE
        self._session.close()

    def look(self) -> float:
        """Search once before the places of each queue; seconds until the next time."""
        began_at = self._clock()
        before, self._found = self._found, {}
        left_out = self._cursor.left_out()
        self._walks = {queue: walk for queue, walk in self._walks.items() if queue in left_out}
        newest = self._search_newest(left_out)
        was_partial = False
        for queue, places in left_out.items():
            if self._stopping.is_set():
                break
            walk = self._walks.get(queue)
            if walk is None or self._clock() >= walk.rests_until:
                found = self._search_whole(queue, places)
            else:
                was_partial = True
                found = self._search_part(queue, places, walk, PART / len(left_out), newest.get(queue, []))
            if found:
                self._found[queue] = set(found)
                self._on_found()
        if was_partial:
            return LONGEST_REST
        if self._found and all(found <= before.get(queue, set()) for queue, found in self._found.items()):
            return LONGEST_REST  # they are locked, their queue is paused, or all its slots are taken
        return rest_after(self._clock() - began_at)

    def _search_whole(self, queue: str, places: Sequence[Place]) -> list[Place]:
        asked_at = self._clock()
        found, page_count = self._search(queue, places)
        ended_at = self._clock()
        is_long = page_count > SHORT_WALK
        if is_long:
            walk = self._walks.setdefault(queue, _Walk(places))
            walk.seconds = ended_at - asked_at
            walk.others_are_long = False
            rest = REST_OF_WHOLE * sum(each.seconds for each in self._walks.values())
            walk.rests_until = ended_at + min(rest, LONGEST_REST_OF_WHOLE)
        elif not found:
            self._walks.pop(queue, None)
        self._cursor.was_searched(queue, found, seconds=ended_at - asked_at, is_long=is_long)
        return found

    def _search_newest(self, left_out: Mapping[str, Sequence[Place]]) -> dict[str, list[Place]]:
        now = self._clock()
        while len(self._highest_ids) > 1 and self._highest_ids[1][0] <= now - NEW:
            self._highest_ids.popleft()
        newer_than = self._highest_ids[0][1] if self._walks and self._highest_ids else None
        with self._session.use() as connection:
            found, highest_id = newest_left_behind(
                connection, left_out, sorted(self._excluded_kinds()), newer_than=newer_than
            )
        self._highest_ids.append((now, highest_id))
        return found

    def _search_part(
        self, queue: str, places: Sequence[Place], walk: _Walk, longest: float, newest: Sequence[Place]
    ) -> list[Place]:
        found, page_count = self._search(queue, places, since=walk.since, of_others=False)
        walk.took(page_count, longest, places)
        if not walk.others_are_long:
            others, page_count = self._search(queue, places, of_known=False)
            walk.others_are_long = page_count > longest
            found += others
        found += newest
        self._cursor.was_searched(queue, found, seconds=walk.seconds, is_long=None)
        return found

    def _search(self, queue: str, places: Sequence[Place], **what: Any) -> tuple[list[Place], int]:
        """What was found, and how many pages more were read than are anyway."""
        excluded_kinds = sorted(self._excluded_kinds())
        with self._session.use() as connection, transaction(connection):
            found, page_count = left_behind(connection, queue, places, excluded_kinds, **what)
        return found, page_count - ORDINARY_PAGES * (2 * len(places) + 1)
