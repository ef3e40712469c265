"""A worker whose wall clock is wrong: libfaketime, where it is installed."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import SupportsIndex

SKEWS = ("+1h", "-1h", "+1d", "-1d", "+0")


def library() -> Path | None:
    """libfaketime, or None."""
    for pattern in ("*/faketime/libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1"):
        for path in Path("/usr/lib").glob(pattern):
            return path
    return None


def environment(skew: str) -> dict[str, str]:
    """What a process needs to live at another time; nothing without the library."""
    found = library()
    if found is None:
        return {}
    return {"LD_PRELOAD": str(found), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def repair_sleep() -> None:
    """Under libfaketime ``time.sleep`` fails with EINVAL: Python sleeps until an absolute instant
    (clock_nanosleep), which the library gets wrong for a monotonic clock that it must not fake.
    """
    if "FAKETIME" in os.environ:
        time.sleep = _sleep


def _sleep(seconds: SupportsIndex | float, /) -> None:
    wait = float(seconds)
    if wait < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], wait)
