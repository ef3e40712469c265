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
    """Let all statements of the transaction that begins here see one snapshot."""
    run(connection, "one_snapshot")


def join_whole_tables(connection: Connection, *, longest: timedelta | None) -> None:
    """Bound each statement of the open transaction, and let none join two tables row by row."""
    milliseconds = None if longest is None else max(1, round(longest.total_seconds() * 1000))
    fetch(connection, "join_whole_tables", milliseconds=milliseconds)


def end_of_jobs(connection: Connection, after_id: int | None, *, row_count: int) -> int | None:
    """The id up to which there are so many rows of a table behind ``after_id``; None: up to the newest."""
    last_id: int | None = fetch(connection, "end_of_jobs", after_id=after_id, row_count=row_count)[0][0]
    return last_id


def end_of_claims(connection: Connection, after_key: bytes | None, *, row_count: int) -> bytes | None:
    """The key up to which there are so many unique claims behind ``after_key``; None: up to the last."""
    rows = fetch(connection, "end_of_claims", after_key=after_key, row_count=row_count)
    return bytes(rows[0][0]) if rows else None


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
