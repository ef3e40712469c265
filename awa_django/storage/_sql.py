"""Runs the statements of ``storage/sql/``: each packaged file is read once and sent as it stands.

Every storage function takes the connection it runs on: Django's (producers, operators) or a
worker's own psycopg connection. Both have ``cursor()`` and take named parameters, and on both
statements are planned with their values (a plan kept from an empty table stays bad: 540 instead of
13,950 jobs/s). Only single inserts keep their plan (``prepared.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from awa_django.storage.rows import Attempt


class Cursor(Protocol):
    """What storage needs of a cursor: psycopg's and Django's both have it."""

    rowcount: int

    def execute(self, query: str, params: Mapping[str, object] | None = None, /) -> object: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Connection(Protocol):
    """A psycopg connection, or Django's ``connections[alias]``."""

    def cursor(self) -> AbstractContextManager[Any]: ...


@cache
def statement(name: str) -> str:
    """The text of ``storage/sql/<name>.sql``, without the lines that are comments, and without indents.

    So it begins with what it does, for those who name a span by its first word; and it is less than the
    4,096 characters up to which psycopg remembers how a text is read.
    """
    text = files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


def fetch(connection: Connection, name: str, /, **params: object) -> list[tuple[Any, ...]]:
    """Run the named statement; its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement(name), params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def run(connection: Connection, name: str, /, **params: object) -> int:
    """Run the named statement, which returns no rows; how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement(name), params)
        count: int = cursor.rowcount
        return count


def explain(connection: Connection, name: str, /, **params: object) -> dict[str, Any]:
    """The plan of the named statement with these values; it is not run."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement(name)}", params)
        [(found,)] = cursor.fetchall()
        # A connection may have been told to leave JSON as text.
        plans = json.loads(found) if isinstance(found, str) else found
        plan: dict[str, Any] = plans[0]["Plan"]
        return plan


def attempt_arrays(attempts: Sequence[Attempt]) -> dict[str, str]:
    """The parameters ``job_ids`` and ``run_leases``, parallel, in the order of the attempts."""
    return {
        "job_ids": _integers(job_id for job_id, _ in attempts),
        "run_leases": _integers(run_lease for _, run_lease in attempts),
    }


def _integers(values: Iterable[int]) -> str:
    """An array parameter as text: psycopg takes seven times as long over a list (0.7 us an integer)."""
    return "{" + ",".join(map(str, values)) + "}"
