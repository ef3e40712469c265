"""Which runs go on, and which of their rows somebody else has locked; asked without waiting for them."""

from __future__ import annotations

from collections.abc import Iterable

from awa_django.storage._sql import Connection, attempt_arrays, fetch
from awa_django.storage.rows import Attempt


def locked_runs(connection: Connection, attempts: Iterable[Attempt]) -> set[Attempt]:
    """Those that run and are locked by somebody else; the others that run are locked by us now.

    In a transaction: what it locks stays locked until its end.
    """
    ordered = sorted(attempts)
    ours = {Attempt._make(row) for row in fetch(connection, "lock_free_runs", **attempt_arrays(ordered))}
    others = [attempt for attempt in ordered if attempt not in ours]
    if not others:
        return set()
    return still_running(connection, others)


def still_running(connection: Connection, attempts: Iterable[Attempt]) -> set[Attempt]:
    """Those that run, locked or not; the others were cancelled, rescued, deleted, or have ended."""
    rows = fetch(connection, "still_running", **attempt_arrays(sorted(attempts)))
    return {Attempt._make(row) for row in rows}
