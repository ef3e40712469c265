"""Service: a thread that calls ``tick`` again and again, outlives its errors, and stops when asked."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from datetime import timedelta

from awa_django.worker.trouble import Trouble

# After an error: shortest and longest wait before the next tick. The longest is how late a worker
# notices that the database is back.
RETRY_SECONDS = (0.5, 3.0)
# Each wait is shortened at random by up to this share, so that many workers do not tick together.
JITTER = 0.1


class Service(ABC):
    """One loop of the supervisor. ``last_good_tick`` (monotonic seconds) is what its health is made of."""

    name: str
    interval: timedelta

    def __init__(self) -> None:
        self.last_good_tick: float | None = None
        self.superseded_count = 0
        """Jobs that this loop ended because another one holds their unique key."""
        self._trouble = Trouble(self.name, RETRY_SECONDS)
        self._waits = 0.0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"awa-{self.name}", daemon=True)

    @abstractmethod
    def tick(self) -> float | None:
        """Do the work once; seconds until the next time, None for the ordinary interval."""

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Tick now rather than at the end of the wait."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> None:
        """Let the tick under way end, and no other begin."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def longest_tick(self) -> float:
        """Seconds that may lie between two good ticks by the nature of the loop, or by its own last word."""
        return max(self.interval.total_seconds(), self._waits)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @abstractmethod
    def close(self) -> None:
        """Free what the loop used; called on its thread when it ends."""

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            wait = self._tick_safely()
            self._wake.wait(wait * random.uniform(1.0 - JITTER, 1.0))
        self.close()

    def _tick_safely(self) -> float:
        try:
            wait = self.tick()
        except Exception as exc:  # noqa: BLE001  (a loop must outlive whatever its tick meets)
            return self._trouble.met(exc)
        self._trouble.is_over()
        self.last_good_tick = time.monotonic()
        self._waits = self.interval.total_seconds() if wait is None else wait
        return self._waits
