"""The floor: what a bare psycopg loop does on one narrow table, claiming and finishing 500 at a time."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

BATCH = 500

CREATE: LiteralString = """
DROP TABLE IF EXISTS bench_floor;
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
RETURNING id, args::text
"""
FINISH: LiteralString = "UPDATE bench_floor SET state = 2, finished_at = now() WHERE id = ANY (%s)"


def fill(connection: psycopg.Connection[Any], count: int) -> None:
    """A new table with ``count`` jobs, vacuumed as the product's is."""
    connection.execute(CREATE)
    connection.execute(FILL, [count])
    connection.execute("VACUUM ANALYZE bench_floor")


def drain(connection: psycopg.Connection[Any]) -> float:
    """Run them all; jobs per second from the first claim to the last finish."""
    while rows := connection.execute(CLAIM, [BATCH]).fetchall():
        connection.execute(FINISH, [sorted(row[0] for row in rows)])
    row = connection.execute(
        "SELECT count(*) / extract(epoch FROM max(finished_at) - min(claimed_at)) FROM bench_floor"
    ).fetchone()
    assert row is not None
    return float(row[0])
