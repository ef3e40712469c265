"""Run the doctor's questions: each is a statement in ``sql/doctor/`` that finds what must not be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch, run


@dataclass(frozen=True, slots=True)
class Found:
    """How many subjects a question found, and the first 20 of them as text, mostly job ids."""

    count: int
    examples: list[str]


def ask(connection: Connection, question: str, /, **params: object) -> Found:
    """Run ``sql/doctor/<question>.sql``."""
    return Found(*fetch(connection, f"doctor/{question}", **params)[0])


def read_one_snapshot(connection: Connection) -> None:
    """Let all statements of the transaction that begins here see one snapshot, and read whole tables."""
    run(connection, "one_snapshot")
    fetch(connection, "join_whole_tables")


class Server(NamedTuple):
    """Connections: how many the server takes, are open, and may be opened by the live workers."""

    usable: int
    open: int
    of_workers: int
    notification_queue_usage: float
    """The share of the server's queue of notifications that is full."""
    hot_size: int
    """Bytes of the table of hot jobs."""


def server_budget(connection: Connection, *, seen_within: timedelta) -> Server:
    """What the server has to give; workers live that were seen within that time."""
    return Server._make(fetch(connection, "server_budget", seen_within=seen_within.total_seconds())[0])
