"""Leader leases: rows with an expiry, so nothing about leadership depends on a session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from awa_django.storage._sql import Connection, fetch, run


def lead(connection: Connection, duties: Sequence[str], *, holder: str, ttl: timedelta) -> dict[str, int]:
    """Take or renew duties; those held now, with their epoch (it grows with each change of holder).

    The lease runs from the database's now(): the holder must count ``ttl`` from before it asked.
    """
    return dict(fetch(connection, "lead", duties=list(duties), holder=holder, ttl=ttl.total_seconds()))


def resign(connection: Connection, *, holder: str) -> None:
    """Give up every duty of the holder."""
    run(connection, "resign", holder=holder)
