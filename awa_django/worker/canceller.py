"""Canceller: tells handlers whose run is over in the database (cancelled, rescued, deleted) to stop.

It asks instead of being told, so it works whoever ended the run and however: an operation, raw SQL,
through a pooler that carries no notifications. The heartbeat would find out too, but much later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from awa_django.storage.locked import still_running
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.database import Session
from awa_django.worker.service import Service
from awa_django.worker.slots import Phase

# Runs shorter than this are not asked about: they end before they could be told, and a worker that
# has only such ones (and an idle one) sends nothing.
SHORTEST_RUN = 0.25


class Canceller(Service):
    """A handler is told within a second: this interval, the answer, and its process's own next look."""

    name = "canceller"
    interval = timedelta(seconds=0.5)

    def __init__(self, session: Session, children: Callable[[], Iterable[ChildProcess]]) -> None:
        super().__init__()
        self._session = session
        self._children = children

    def tick(self) -> float | None:
        old = time.monotonic() - SHORTEST_RUN
        # The slots are read first: a run that is in one by now has its claim committed.
        runs = {
            slot.attempt: (child, slot)
            for child in self._children()
            for slot in child.slots()
            if slot.phase != Phase.ENDED and slot.held_at < old
        }
        if runs:
            with self._session.use() as connection:
                running = still_running(connection, runs)
            for attempt in runs.keys() - running:
                child, slot = runs[attempt]
                child.mark_cancelled(slot)
        return None

    def close(self) -> None:
        self._session.close()
