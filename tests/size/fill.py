"""Fills both tables of jobs with a realistic mix, by SQL on the server: triggers and claims do their part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

# A statement: long enough to be fast, short enough to see that it goes on.
BATCH = 500_000
QUEUES = ("default", "mail", "images", "billing", "bulk", "search", "reports", "size-rare")
_DIRECTORY = Path(__file__).parent


def fill(connection: psycopg.Connection[Any], *, hot: int, deferred: int, say: Callable[[str], None]) -> None:
    """So many jobs into each table (which are to be empty), their kinds into the catalogue; then ANALYZE.

    Needs a connection in autocommit.
    """
    for table, total in (("jobs_hot", hot), ("scheduled_jobs", deferred)):
        text = (_DIRECTORY / f"fill_{table}.sql").read_text(encoding="utf-8")
        began = time.monotonic()
        with without_indexes(connection, table):
            for first in range(1, total + 1, BATCH):
                last = min(first + BATCH - 1, total)
                connection.execute(text, {"first": first, "last": last, "total": total})
                say(f"{last:,} rows of {table} after {time.monotonic() - began:.0f} s")
        say(f"indexes of {table} after {time.monotonic() - began:.0f} s")
    connection.execute(
        """
        INSERT INTO awa.job_kinds (kind, queue)
        SELECT kind, 'default' FROM unnest(ARRAY[
            'shop.send_receipt', 'shop.resize_image', 'billing.charge', 'mail.digest', 'search.index',
            'size.rare', 'shop.remind', 'billing.renew', 'crm.follow_up'
        ]) AS kind
        ON CONFLICT DO NOTHING
        """
    )
    connection.execute(
        "INSERT INTO awa.queue_meta (queue) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", [list(QUEUES)]
    )
    connection.execute("VACUUM (ANALYZE) awa.jobs_hot, awa.scheduled_jobs, awa.job_unique_claims")


@contextmanager
def without_indexes(connection: psycopg.Connection[Any], table: str) -> Iterator[None]:
    """Make the table's indexes anew at the end, in the order of their creation, which counts.

    See 0001_jobs.sql. Rows are written three times as fast. The claims of unique keys keep their index.
    """
    found = connection.execute(
        """
        SELECT index.indexrelid::regclass::text, conname, pg_get_indexdef(index.indexrelid),
            pg_get_constraintdef(con.oid)
        FROM pg_index AS index
        LEFT JOIN pg_constraint AS con ON con.conindid = index.indexrelid
        WHERE index.indrelid = ('awa.' || %s)::regclass
        ORDER BY index.indexrelid
        """,
        [table],
    ).fetchall()
    for index, constraint, _, _ in found:
        connection.execute(
            f"ALTER TABLE awa.{table} DROP CONSTRAINT {constraint}" if constraint else f"DROP INDEX {index}"
        )
    yield
    connection.execute("SET maintenance_work_mem = '512MB'")
    for _, constraint, index_sql, constraint_sql in found:
        connection.execute(
            f"ALTER TABLE awa.{table} ADD CONSTRAINT {constraint} {constraint_sql}"
            if constraint
            else index_sql
        )
