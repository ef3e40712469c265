"""What may be asked for: the ranges of the tables' CHECKs."""

from __future__ import annotations

import operator
from datetime import UTC, datetime

LOWEST_PRIORITY, HIGHEST_PRIORITY = -98, 102
EARLIEST, LATEST = datetime(1, 2, 1, tzinfo=UTC), datetime(9999, 12, 1, tzinfo=UTC)
LONGEST_NAME = 200


def check_queue(queue: str) -> None:
    if not 1 <= len(queue) <= LONGEST_NAME or "\x00" in queue:
        raise ValueError(f"a queue's name has 1 to {LONGEST_NAME} characters and no NUL, unlike {queue!r}")


def check_instant(name: str, instant: datetime) -> None:
    if instant.utcoffset() is None:
        raise ValueError(f"{name} must be an aware datetime, not {instant!r}")
    if not EARLIEST <= instant <= LATEST:
        raise ValueError(f"{name} must be between 0001-02-01 and 9999-12-01, not {instant.isoformat(' ')}")


def check_priority(priority: int) -> None:
    """Raises: ValueError when the tables do not take it."""
    if not LOWEST_PRIORITY <= operator.index(priority) <= HIGHEST_PRIORITY:
        raise ValueError(
            f"priority must be between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}, not {priority!r}"
        )
