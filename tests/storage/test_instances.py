"""Instances: a row for each live process, refreshed, and removed when it ends or is forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage.instances import Instance, announce, withdraw

pytestmark = pytest.mark.django_db

SUPERVISOR = Instance(name="w", supervisor=None, pid=10, concurrency=0, running_count=3)
CHILD = Instance(name="w/1", supervisor="w", pid=11, concurrency=8, running_count=3)


def say(*instances: Instance, draining: bool = False) -> None:
    announce(
        connection, instances, hostname="host", version="1.0", queues=["mail", "default"], draining=draining
    )


def rows() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, supervisor, hostname, pid, version, queues, concurrency, running_count, draining, "
            "last_seen_at = now() FROM awa.runtime_instances ORDER BY name"
        )
        return list(cursor.fetchall())


def forget(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE awa.runtime_instances SET last_seen_at = now() - interval '2 hours' WHERE name = %s",
            [name],
        )


def test_processes_are_announced() -> None:
    say(CHILD, SUPERVISOR)
    assert rows() == [
        ("w", None, "host", 10, "1.0", ["mail", "default"], 0, 3, False, True),
        ("w/1", "w", "host", 11, "1.0", ["mail", "default"], 8, 3, False, True),
    ]


def test_announced_again_a_row_says_what_is_now() -> None:
    say(SUPERVISOR)
    forget("w")
    say(
        Instance(name="w", supervisor=None, pid=10, concurrency=0, running_count=0),
        draining=True,
    )
    [row] = rows()
    assert row[7:] == (0, True, True)


def test_those_that_ended_and_those_long_unseen_are_withdrawn() -> None:
    others = [Instance(name=name, supervisor=None, pid=1, concurrency=0, running_count=0) for name in "ab"]
    say(SUPERVISOR, CHILD, *others)
    forget("a")
    withdraw(connection, ["w/1"], unseen_for=timedelta(hours=1))
    assert [row[0] for row in rows()] == ["b", "w"]
