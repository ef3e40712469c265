"""How soon the speed is back when a snapshot that kept dead rows is gone: by a leader, by autovacuum."""

from __future__ import annotations

import statistics
import time
from typing import Any

import psycopg
import pytest

from awa_django.storage.claim import ClaimRequest
from awa_django.storage.finalize import complete
from awa_django.storage.rows import Completion
from awa_django.worker.cursor import ClaimCursor
from tests.clusters import cluster
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt

Postgres = psycopg.Connection[Any]

JOBS = 100_000
REQUEST = ClaimRequest(limits={"default": 500}, total=500, worker="w")
DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'awa.jobs_hot'::regclass"


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.fault("U49", injected="100,000 jobs beside an idle REPEATABLE READ transaction, which then ends")
@pytest.mark.parametrize(("by", "minutes"), [("a leader", 0.5), ("autovacuum alone", 3.0)])
def test_speed_is_back_soon_after_a_pinned_snapshot_ends(
    by: str, minutes: float, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    """The server's own settings: autovacuum looks once a minute."""
    with cluster() as server, server.connect() as session, server.connect() as reader:
        if by == "a leader":
            start_worker_at(server.url, "--queues", "another").wait_ready(session)
        cursor = ClaimCursor()
        run(session, 5_000, cursor)
        before = statistics.median(run(session, 5_000, cursor) for _ in range(3))
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM awa.jobs_hot")
        run(session, JOBS, cursor)
        # A worker that starts now has no place to go on from: it begins at the head.
        laden = statistics.median(run(session, 5_000, ClaimCursor()) for _ in range(3))
        reader.execute("ROLLBACK")
        released = time.monotonic()
        while dead_rows(session) > JOBS:
            assert time.monotonic() < released + 60 * minutes, dead_rows(session)
            run(session, 500, cursor)
            time.sleep(0.1)
        seconds = time.monotonic() - released
        after = statistics.median(run(session, 5_000, ClaimCursor()) for _ in range(3))
    assert after > before / 2
    observe(
        f"by {by} {seconds:.0f} s after its end: "
        f"from {laden:,.0f} jobs/s to {after:,.0f}, before {before:,.0f}"
    )


def run(session: Postgres, count: int, cursor: ClaimCursor) -> float:
    """Enqueue and run so many, 500 at a time; jobs a second."""
    started = time.monotonic()
    for _ in range(0, count, 500):
        session.execute("INSERT INTO awa.jobs_hot (kind) SELECT 'k' FROM generate_series(1, 500)")
        jobs = cursor.claim(session, REQUEST)
        assert len(jobs) == 500
        complete(session, [Completion(job.key) for job in jobs])
    return count / (time.monotonic() - started)


def dead_rows(session: Postgres) -> int:
    session.execute("SELECT pg_stat_force_next_flush()")
    [[count]] = session.execute(DEAD).fetchall()
    return int(count)
