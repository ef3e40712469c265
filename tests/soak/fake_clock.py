"""A worker whose wall clock is wrong, and jumps while it runs: libfaketime, where it is installed."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import SupportsIndex

SKEWS = ("+5m", "+1h", "-1h", "+1d", "-1d", "-50y", "+50y")
_VARIABLE = "FAKETIME_TIMESTAMP_FILE"


def library() -> Path | None:
    """libfaketime, or None."""
    for pattern in ("*/faketime/libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1"):
        for path in Path("/usr/lib").glob(pattern):
            return path
    return None


def environment(file: Path) -> dict[str, str]:
    """What a process needs to live at the time that ``file`` says; nothing without the library."""
    found = library()
    if found is None:
        return {}
    return {
        "LD_PRELOAD": str(found),
        _VARIABLE: str(file),
        "FAKETIME_CACHE_DURATION": "1",  # seconds until it reads the file again
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(file: Path, skew: str) -> None:
    """From the true time by so much, for all who read the file; they never see half of it."""
    new = file.with_suffix(".new")
    new.write_text(skew)
    new.replace(file)


def repair_sleep() -> None:
    """Under libfaketime ``time.sleep`` fails with EINVAL: Python sleeps until an absolute instant
    (clock_nanosleep), which the library gets wrong for a monotonic clock that it must not fake.
    """
    if _VARIABLE in os.environ:
        time.sleep = _sleep


def _sleep(seconds: SupportsIndex | float, /) -> None:
    wait = float(seconds)
    if wait < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], wait)
