"""Bytes of WAL a job costs, by EXPLAIN (ANALYZE, WAL): the same on every machine.

Measured on PostgreSQL 15 and 18 with batches of 500, empty arguments and no full-page images: claim
406, completion 253, heartbeat 135; retry 701, its promotion 546. Of the heartbeat and the retry 56 are the
row locks in id order. The limits leave a tenth above that.

On a server of their own: while a transaction goes on anywhere on a server, in another database too, its
sessions take it that older row versions are still seen, leave them on their page, and a heartbeat costs 394.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from awa_django.histogram import BOUNDS
from awa_django.storage._sql import statement
from tests.clusters import Cluster, cluster

pytestmark = pytest.mark.xdist_group("wal")

JOBS = 1_000
BATCH = 500
CLAIM = {
    "queues": ["default"],
    "limits": [BATCH],
    "total": BATCH,
    "share": BATCH,
    "worker": "host:12345:abcdef/1",
    "timeouts": "{}",
    "hold": 7.0,
    "excluded_kinds": [],
    "aging_kinds": [],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with cluster(full_page_writes="off", autovacuum="off") as made:
        yield made


@pytest.fixture
def database(server: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url, autocommit=True, prepare_threshold=None) as database:
        database.execute("TRUNCATE awa.jobs_hot, awa.scheduled_jobs")
        database.execute(
            "INSERT INTO awa.jobs_hot (kind) SELECT 'tests.job' FROM generate_series(1, %s)", [JOBS]
        )
        yield database


def wal_bytes(database: psycopg.Connection[Any], name: str, params: dict[str, object]) -> float:
    """The bytes of WAL that the statement wrote for each job of the batch."""
    row = database.execute("EXPLAIN (ANALYZE, WAL, FORMAT JSON) " + statement(name), params).fetchone()
    assert row is not None
    return float(row[0][0]["Plan"]["WAL Bytes"]) / BATCH


def claim(database: psycopg.Connection[Any]) -> tuple[float, list[int]]:
    cost = wal_bytes(database, "claim", CLAIM)
    running = database.execute("SELECT id FROM awa.jobs_hot WHERE state = 'running' ORDER BY id").fetchall()
    assert len(running) == BATCH
    return cost, [row[0] for row in running]


def test_claim_heartbeat_and_completion_of_a_job(database: psycopg.Connection[Any]) -> None:
    costs = []
    for _ in range(JOBS // BATCH):
        claimed, ids = claim(database)
        runs: dict[str, object] = {"job_ids": ids, "run_leases": [1] * BATCH}
        beaten = wal_bytes(database, "heartbeat", runs)
        ends = {**runs, "results": [None] * BATCH, "bounds": list(BOUNDS)}
        completed = wal_bytes(database, "complete", ends)
        costs.append((claimed, beaten, completed))
    # The better of two batches: one may meet the split of an index page.
    claimed, beaten, completed = (min(cost) for cost in zip(*costs, strict=True))
    assert claimed < 450
    assert beaten < 155
    assert completed < 280


def test_retry_and_promotion_of_a_job(database: psycopg.Connection[Any]) -> None:
    _, ids = claim(database)
    deferred = wal_bytes(
        database,
        "defer",
        {
            "job_ids": ids,
            "run_leases": [1] * BATCH,
            "states": ["retryable"] * BATCH,
            "delays": [0.0] * BATCH,
            "refunds": [0] * BATCH,
            "entries": ['{"error": "no"}'] * BATCH,
            "unknown_kinds": [False] * BATCH,
            "aging": [False] * BATCH,
            "bounds": list(BOUNDS),
        },
    )
    promoted = wal_bytes(database, "promote", {"batch": BATCH, "since": None})
    assert deferred < 775
    assert promoted < 620
