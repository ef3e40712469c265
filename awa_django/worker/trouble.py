"""Trouble: what a loop does about failures in a row: waits longer and longer, and says so once a minute."""

from __future__ import annotations

import random
import time

import psycopg

from awa_django.logs import get_logger

logger = get_logger(__name__)

# A failure that goes on is logged this often, in seconds: a database that is away for hours must not fill
# the log.
LOG_EVERY = 60.0
# Beyond so many doublings each wait is the longest.
MOST_DOUBLINGS = 16


class Trouble:
    """The failures of one loop since it last worked. Used by one thread.

    ``waits`` are the shortest and the longest wait in seconds. The random half of each wait spreads the
    connections of many workers.
    """

    def __init__(self, what: str, waits: tuple[float, float]) -> None:
        self._what = what
        self._waits = waits
        self._failures = 0
        self._logged_at = float("-inf")

    def met(self, exc: Exception) -> float:
        """One more failure; how many seconds to wait before the next try."""
        shortest, longest = self._waits
        wait = min(shortest * 2.0**self._failures, longest) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, MOST_DOUBLINGS)
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            if isinstance(exc, psycopg.Error):
                logger.warning("%s failed, trying again in %.1f s: %s", self._what, wait, exc)
            else:
                logger.error("%s failed, trying again in %.1f s", self._what, wait, exc_info=exc)
        return wait

    def is_over(self) -> None:
        """It works; the next failure is the first one again."""
        if self._failures:
            logger.info("%s works again", self._what)
        self._failures = 0
        self._logged_at = float("-inf")
