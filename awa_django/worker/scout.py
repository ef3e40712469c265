"""Scout: searches before the places of the claims, beside them, while a search as a whole is a long walk."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection

from awa_django.logs import get_logger
from awa_django.storage.claim import Place, left_behind
from awa_django.worker.cursor import LONGEST_REST, ORDINARY_PAGES, SHORT_WALK, ClaimCursor, rest_after
from awa_django.worker.database import Session, transaction

logger = get_logger(__name__)

# Seconds after an error: until then claims search for themselves.
PAUSE = 10.0
# Seconds that a stop waits for the statement that it has cancelled; where nothing answers, it goes on.
STOP_PATIENCE = 1.0


class Scout:
    """A thread, and a connection, that there are only while the cursor leaves something out."""

    def __init__(
        self,
        session: Session,
        cursor: ClaimCursor,
        *,
        excluded_kinds: Callable[[], Collection[str]],
        on_found: Callable[[], None],
    ) -> None:
        self._session = session
        self._cursor = cursor
        self._excluded_kinds = excluded_kinds
        self._on_found = on_found
        self._found: dict[str, set[Place]] = {}
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
        began_at = time.monotonic()
        before, self._found = self._found, {}
        for queue, places in self._cursor.left_out().items():
            if self._stopping.is_set():
                break
            asked_at = time.monotonic()
            with self._session.use() as connection, transaction(connection):
                found, page_count = left_behind(connection, queue, places, sorted(self._excluded_kinds()))
            self._cursor.was_searched(
                queue,
                found,
                seconds=time.monotonic() - asked_at,
                is_long=page_count - ORDINARY_PAGES * (2 * len(places) + 1) > SHORT_WALK,
            )
            if found:
                self._found[queue] = set(found)
                self._on_found()
        if self._found and all(found <= before.get(queue, set()) for queue, found in self._found.items()):
            return LONGEST_REST  # they are locked, their queue is paused, or all its slots are taken
        return rest_after(time.monotonic() - began_at)
