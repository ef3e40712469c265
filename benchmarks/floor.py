"""The floor: a bare psycopg loop on one narrow table, claiming and finishing 500 at a time.

No retries, leases, heartbeats, errors, kinds or queues: what a Python process and this PostgreSQL can
do at all. ``python -m benchmarks.floor drain`` is one such process, on the database of ``DATABASE_URL``: it
says "ready", waits for a line, and runs until nothing is left. ``serve`` goes on until it is ended, and
waits for notifications while there is nothing to do.
"""

from __future__ import annotations

import os
import sys
from typing import Any, LiteralString

import psycopg

from benchmarks import marks

BATCH = 500
CHANNEL: LiteralString = "bench_floor"
# Half of each page is left free for the new versions of its rows, as in the product's hot table.
CREATE: LiteralString = """
CREATE TABLE bench_floor (
    id bigserial PRIMARY KEY,
    args jsonb NOT NULL DEFAULT '{}',
    state smallint NOT NULL DEFAULT 0,
    claimed_at timestamptz,
    finished_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX bench_floor_due ON bench_floor (id) WHERE state = 0;
"""
FILL: LiteralString = (
    "INSERT INTO bench_floor (args) SELECT jsonb_build_object('number', n) FROM generate_series(1, %s) AS n"
)
CLAIM: LiteralString = """
WITH slot AS MATERIALIZED (
    SELECT id FROM bench_floor WHERE state = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE bench_floor SET state = 1, claimed_at = now() WHERE id = ANY (ARRAY(SELECT id FROM slot))
RETURNING id, args
"""
FINISH: LiteralString = "UPDATE bench_floor SET state = 2, finished_at = now() WHERE id = ANY (%s)"
RATE: LiteralString = (
    "SELECT count(*), extract(epoch FROM max(finished_at) - min(claimed_at))::float8 "
    "FROM bench_floor WHERE state = 2"
)


def nothing(number: int) -> None:
    pass


def work(connection: psycopg.Connection[Any], handler: Any) -> bool:
    """Claim a batch, run it, finish it, each in a transaction of its own; whether there was one."""
    rows = connection.execute(CLAIM, [BATCH]).fetchall()
    for _, args in rows:
        handler(**args)
    if rows:
        connection.execute(FINISH, [sorted(row[0] for row in rows)])
    return bool(rows)


def main(mode: str, handler_name: str = "nothing") -> None:
    handler = {"nothing": nothing, "mark": marks.mark}[handler_name]
    # Unprepared: a plan made while the table was empty would be kept.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None) as connection:
        if mode == "serve":
            connection.execute(f"LISTEN {CHANNEL}")
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            if work(connection, handler):
                continue
            if mode == "drain":
                return
            for _ in connection.notifies(timeout=1.0, stop_after=1):
                pass


if __name__ == "__main__":
    main(*sys.argv[1:])
