"""Put many jobs in: ids from the sequence, unique keys by array, rows by COPY.

All run on Django's connection, in the transaction that is open there, and raise Django's errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from awa_django.storage._sql import Connection, fetch, statement
from awa_django.storage.insert import JobShape, NewJob

# What COPY reads as something else in a text: its own escape, and the ends of columns and rows.
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

# Rows in one piece of what is sent: bounds the memory it takes beside the rows themselves.
BLOCK = 1000


def reserve_ids(connection: Connection, count: int) -> tuple[datetime, list[int]]:
    """The database's now, and ``count`` (at least 1) ids for jobs that are to be inserted."""
    [(now, ids)] = fetch(connection, "reserve_ids", count=count)
    return now, ids


def take_unique_keys(connection: Connection, wanted: Sequence[tuple[bytes, int]]) -> set[int]:
    """Take the free ones of (key, job id) pairs, which must be sorted; the ids that got their key.

    The jobs are to be inserted in the same transaction.
    """
    rows = fetch(
        connection,
        "take_unique_keys",
        unique_keys=[unique_key for unique_key, _ in wanted],
        job_ids=[job_id for _, job_id in wanted],
    )
    return {job_id for (job_id,) in rows}


def copy_jobs(connection: Any, jobs: Sequence[tuple[int, NewJob]], *, now: datetime) -> set[str]:
    """COPY jobs under the ids of ``reserve_ids``, which told ``now``; the queues that may run one now.

    Only on Django's connection, whose errors it raises. Unique jobs must hold their keys already.
    """
    rows: dict[str, list[str]] = {}  # by the statement that they are sent to
    formats: dict[int, tuple[str, str, list[str]]] = {}
    queues: set[str] = set()
    # psycopg's write_row would adapt each value by itself: most of a row is the same for a whole shape.
    for job_id, job in jobs:
        shape = job.shape
        known = formats.get(id(shape))
        if known is None:
            known = formats[id(shape)] = (*_format(shape, now), rows.setdefault(_statement(shape, now), []))
            if shape.due_at(now) <= now:
                queues.add(shape.queue)
        before, after, lines = known
        # JSON text has no control characters, so the backslash is all that there is to escape.
        args = job.args.replace("\\", r"\\")
        key = "" if job.unique_key is None else job.unique_key.hex()
        lines.append(f"{job_id}\t{before}\t{args}\t{after}{key}\n")
    for text, lines in rows.items():
        # COPY is not an execute(): without these two it would run in a broken atomic block, and raise
        # the driver's errors instead of Django's.
        connection.validate_no_broken_transaction()
        with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(text) as copy:
            for start in range(0, len(lines), BLOCK):
                copy.write("".join(lines[start : start + BLOCK]))
    return queues


def _statement(shape: JobShape, now: datetime) -> str:
    deferred = shape.due_at(now) > now
    return statement(
        "copy_plain_jobs" if shape.is_plain else "copy_deferred_jobs" if deferred else "copy_hot_jobs"
    )


def _format(shape: JobShape, now: datetime) -> tuple[str, str]:
    """What stands between a row's id and its args, and between its args and its unique key."""
    before = _columns(shape.kind, shape.queue)
    after = _columns(str(shape.priority), str(shape.max_attempts))
    if shape.is_plain:
        return before, after
    options = _columns(shape.metadata, _array(shape.tags), str(shape.due_at(now)))
    # The key itself is added to each row: after the sign that what follows is hexadecimal.
    key = "\\N\t\\N" if shape.unique_states is None else f"{shape.unique_states}\t\\\\x"
    return before, f"{after}\t{options}\t{key}"


def _columns(*values: str) -> str:
    return "\t".join(value.translate(_ESCAPES) for value in values)


def _array(items: Iterable[str]) -> str:
    escaped = (item.replace("\\", r"\\").replace('"', r"\"") for item in items)
    return "{" + ",".join(f'"{item}"' for item in escaped) + "}"
