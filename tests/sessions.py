"""Several sessions at once: run them together, see one wait for another, count their deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg


def together(*actions: Callable[[], None]) -> None:
    """Run the actions at the same time; what one of them raises is raised here."""
    failures: list[BaseException] = []

    def guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as exc:  # noqa: BLE001  (raised again below)
            failures.append(exc)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def is_blocked(observer: psycopg.Connection[Any]) -> bool:
    """Whether a session of this database waits for a lock."""
    row = observer.execute(
        "SELECT EXISTS (SELECT FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend' AND wait_event_type = 'Lock')"
    ).fetchone()
    return row == (True,)


def deadlocks(observer: psycopg.Connection[Any]) -> int:
    """How many deadlocks this database has had."""
    observer.execute("SELECT pg_stat_clear_snapshot()")
    row = observer.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])
