"""Who waits to be woken: producers notify only then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from awa_django.storage._sql import Connection, fetch, run


def wait(connection: Connection, worker: str, queues: Sequence[str], *, ttl: timedelta) -> None:
    """Ask producers of these queues to notify, for ``ttl``."""
    run(connection, "wait", worker=worker, queues=list(queues), ttl=ttl.total_seconds())


def listen(connection: Connection) -> None:
    """Hear notifications on this connection; it must be in autocommit."""
    run(connection, "listen")


def notify(connection: Connection, payload: str) -> None:
    """Notify whoever listens, ourselves included: whether notifications arrive here at all."""
    fetch(connection, "notify", payload=payload)


def stop_waiting(connection: Connection, worker: str) -> None:
    """Ask for no more notifications."""
    run(connection, "stop_waiting", worker=worker)
