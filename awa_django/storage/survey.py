"""Survey: what waits and who serves it, asked at little cost for the system checks."""

from __future__ import annotations

from datetime import timedelta

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.queues import known_names


def is_standby(connection: Connection) -> bool:
    """Whether the server cannot be written to, as it repeats another one."""
    return bool(fetch(connection, "is_standby")[0][0])


def waiting_kinds(connection: Connection, *, sample: int, limit: int) -> list[str]:
    """The kinds of deferred jobs, and of ``sample`` available ones; sorted, ``limit`` of each."""
    return [kind for (kind,) in fetch(connection, "waiting_kinds", sample=sample, limit=limit)]


def waiting_queues(connection: Connection, *, limit: int) -> list[str]:
    """The queues that have jobs which wait; sorted, ``limit`` at most."""
    return known_names(connection, limit=limit).waiting


def served_queues(connection: Connection, *, seen_within: timedelta) -> set[str]:
    """The queues of the workers that were seen within that time; empty where none lives."""
    rows = fetch(connection, "served_queues", seen_within=seen_within.total_seconds())
    return {queue for (queue,) in rows}
