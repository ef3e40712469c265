"""Wake idle workers after an insert, and ask the database only as often as that is worth."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError

from awa_django.storage.prepared import note_server
from awa_django.storage.wake import wake

logger = logging.getLogger(__name__)

# How long "nobody waits" is believed. Who begins to wait polls for longer than this at first, so a
# worker that an enqueue overlooks finds the job by itself.
NOBODY_SECONDS = 0.1
# Queue names come from callers: forget all of them rather than keep a million.
MOST_QUEUES = 1000

# (alias, queue) -> the monotonic instant until which nobody waits there. Threads race on it without
# a lock: what can be lost is one answer, and then the database is asked once more.
_nobody_until: dict[tuple[str, str], float] = {}


def wake_workers(connection: Any, queues: Iterable[str]) -> None:
    """Wake who waits for one of the queues, when the open transaction commits.

    A statement of its own after the insert: the jobs are in whatever becomes of it, so outside of a
    transaction its failure is logged and not raised.
    """
    now = time.monotonic()
    alias = connection.alias
    asked = [queue for queue in dict.fromkeys(queues) if _nobody_until.get((alias, queue), 0.0) <= now]
    if not asked:
        return
    try:
        woken = wake(connection, asked)
    except DatabaseError:
        if connection.in_atomic_block or not connection.get_autocommit():
            raise
        logger.warning("could not wake the workers of %s: they will poll", asked, exc_info=True)
        return
    # On the way, so that it costs no statement: what the next inserts of this session may be.
    note_server(connection, woken.backend_pid)
    if not woken.anybody:
        if len(_nobody_until) > MOST_QUEUES:
            _nobody_until.clear()
        for queue in asked:
            _nobody_until[alias, queue] = now + NOBODY_SECONDS


def forget_waiters() -> None:
    """Ask the database again at the next enqueue (for tests)."""
    _nobody_until.clear()
