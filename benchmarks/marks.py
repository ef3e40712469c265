"""A handler says that it runs: sixteen bytes into a named pipe, read by the benchmark.

It costs a handler about a microsecond and the database nothing. Only the standard library: peers
import it in virtual environments of their own.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

VARIABLE = "BENCH_MARKS"
RECORD = struct.Struct("<qq")  # the job's number, nanoseconds since 1970
READ_SIZE = RECORD.size * 4096


def mark(number: int = 0) -> None:
    """Call it in a handler. One write of so few bytes is never mixed with another's."""
    os.write(_descriptor(), RECORD.pack(number, time.time_ns()))


@cache
def _descriptor() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY)


class Marks:
    """The reading end; ``environment`` is for the processes that write."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        path = Path(self._directory.name, "marks")
        os.mkfifo(path)
        self.environment = {VARIABLE: str(path)}
        # For both ends, so that opening does not wait and the last writer's end is none.
        self._reading = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()
        self._seen: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._reading, RECORD.pack(-1, 0))
        self._thread.join()
        os.close(self._reading)
        self._directory.cleanup()

    @property
    def count(self) -> int:
        return len(self._seen)

    def since(self, place: int) -> list[tuple[int, int]]:
        """(number, nanoseconds) of the marks after the first ``place``."""
        with self._lock:
            return self._seen[place:]

    def wait_for(self, count: int, *, timeout: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Until so many marks have come. Raises: TimeoutError, when it takes too long or is over."""
        give_up_at = time.monotonic() + timeout
        while self.count < count:
            if time.monotonic() > give_up_at or is_over():
                raise TimeoutError(f"{self.count} of {count} jobs ran")
            time.sleep(0.01)

    def rate(self) -> float:
        """Jobs a second from the first handler to the last."""
        times = sorted(at for _, at in self.since(0))
        return (len(times) - 1) / ((times[-1] - times[0]) / 1e9)

    def _read(self) -> None:
        # What is written in one piece is read in one: a whole number of records each time.
        while True:
            records = list(RECORD.iter_unpack(os.read(self._reading, READ_SIZE)))
            with self._lock:
                self._seen += [record for record in records if record[0] >= 0]
            if any(number < 0 for number, _ in records):
                return
