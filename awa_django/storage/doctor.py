"""Run the doctor's questions: each is a statement in ``sql/doctor/`` that finds what must not be."""

from __future__ import annotations

from dataclasses import dataclass

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
