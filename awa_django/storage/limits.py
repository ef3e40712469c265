"""Reading for people: bounded in time, by the indexes whose order is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from awa_django.storage._sql import Connection, fetch

# In the order of limit_reading.sql.
_NAMES = (
    "statement_timeout", "enable_sort", "enable_bitmapscan", "enable_seqscan", "jit",
    "max_parallel_workers_per_gather",
)  # fmt: skip


def limit_reading(connection: Connection, *, longest: timedelta | None) -> Sequence[str]:
    """Bound each statement of the open transaction, and plan it in order; what was set before."""
    milliseconds = None if longest is None else max(1, round(longest.total_seconds() * 1000))
    [row] = fetch(connection, "limit_reading", milliseconds=milliseconds)
    return row[: len(_NAMES)]


def restore_reading(connection: Connection, before: Sequence[str]) -> None:
    """Take it back where the transaction goes on."""
    fetch(connection, "restore_reading", **dict(zip(_NAMES, before, strict=True)))
