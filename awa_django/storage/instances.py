"""Which worker processes live: one row each, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from awa_django.storage._sql import Connection, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One live process. ``supervisor`` is None for a supervisor itself."""

    name: str
    supervisor: str | None
    pid: int
    concurrency: int
    running_count: int


def announce(
    connection: Connection,
    instances: Sequence[Instance],
    *,
    hostname: str,
    version: str,
    queues: Sequence[str],
    draining: bool,
) -> None:
    """Write or refresh the rows of the processes of one supervisor."""
    run(
        connection,
        "announce",
        names=[instance.name for instance in instances],
        supervisors=[instance.supervisor for instance in instances],
        pids=[instance.pid for instance in instances],
        concurrencies=[instance.concurrency for instance in instances],
        running_counts=[instance.running_count for instance in instances],
        hostname=hostname,
        version=version,
        queues=list(queues),
        draining=draining,
    )


def withdraw(connection: Connection, names: Sequence[str], *, unseen_for: timedelta) -> None:
    """Remove processes that ended, and rows that nobody has refreshed for ``unseen_for``."""
    run(connection, "withdraw", names=list(names), unseen_for=unseen_for.total_seconds())
