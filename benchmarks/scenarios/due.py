"""Jobs that fall due: very many at one instant, and a thousand a second out of a million."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import LiteralString

from benchmarks import peer, processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan
from benchmarks.marks import Marks
from benchmarks.pacing import percentile
from benchmarks.scenarios.drain import by_floor

# Seconds until the instant: the rows are in, vacuumed and analyzed by then.
AHEAD = 10.0
PEERS_AHEAD = 20.0
PATIENCE = 120.0
BATCH = 2_000
RATE = 1_000
# How late a job may be when the jobs that fell due while the table was filled have been caught up with.
CAUGHT_UP_MS = 500.0

# The least that a promotion has to do: no states to reset, no count by queue.
BARE_PROMOTION: LiteralString = """
WITH gone AS (
    DELETE FROM awa.scheduled_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM awa.scheduled_jobs WHERE run_at <= now() ORDER BY run_at, id LIMIT %s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
)
INSERT INTO awa.jobs_hot (
    id, kind, queue, args, priority, attempt, max_attempts, run_at, created_at, errors, metadata, tags,
    unique_key, unique_states, run_lease, progress, result, worker
)
SELECT
    id, kind, queue, args, priority, attempt, max_attempts, run_at, created_at, errors, metadata, tags,
    unique_key, unique_states, run_lease, progress, result, worker
FROM gone
"""


def due_burst(bench: Bench) -> Plan:
    database, jobs = bench.database(), bench.size(50_000, quick=5_000)
    return Plan(
        title=f"{jobs:,} jobs due at one instant, from that instant until the last is done",
        contenders={"floor, already due": by_floor(database, jobs), "awa": burst(database, jobs)},
        peers={other.name: peer.burst(bench, other, jobs, PEERS_AHEAD) for other in bench.peers},
        most_rounds=3,
        most_peer_rounds=1,
    )


def promotion(bench: Bench) -> Plan:
    """The worker serves another queue: it promotes, and runs none of it."""
    database, jobs = bench.database(), bench.size(100_000, quick=10_000)
    return Plan(
        title=f"Move {jobs:,} due jobs to the hot table",
        contenders={
            "bare statement": promote_bare(database, jobs),
            "awa": promote_by_worker(database, jobs),
        },
        most_rounds=3,
    )


def due_rate(bench: Bench) -> Plan:
    database = bench.database()
    jobs, seconds = bench.size(1_000_000, quick=60_000), bench.size(60, quick=10)
    return Plan(
        title=f"Lateness when {RATE:,} of {jobs:,} deferred jobs fall due each second, for {seconds} s",
        contenders={"awa": lateness(database, jobs, seconds)},
        most_rounds=1,
    )


def burst(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with processes.worker(database, "--queues", "bench-0"):
            instant = defer_to_instant(database, jobs)
            wait_until_none(database, "awa.scheduled_jobs", instant)
            wait_until_none(database, "awa.jobs_hot", instant)
            done, seconds = database.one(
                "SELECT count(*), extract(epoch FROM max(finalized_at) - %s)::float8 "
                "FROM awa.jobs_hot WHERE state = 'completed'",
                instant,
            )
        assert done == jobs, f"{done} of {jobs} jobs are done"
        return {"jobs/s": jobs / seconds}

    return measure


def promote_by_worker(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with processes.worker(database, "--queues", "another"):
            instant = defer_to_instant(database, jobs)
            return {"jobs/s": jobs / wait_until_none(database, "awa.scheduled_jobs", instant)}

    return measure


def promote_bare(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        database.defer(jobs, start=database.now(), step=0.0)
        began = time.monotonic()
        while database.connection.execute(BARE_PROMOTION, [BATCH]).rowcount:
            pass
        return {"jobs/s": jobs / (time.monotonic() - began)}

    return measure


def lateness(database: Database, jobs: int, seconds: int) -> Contender:
    """From the instant that a job is due to its handler's first line, of the jobs due in a window."""

    def measure() -> dict[str, float]:
        database.empty()
        start = database.now() + timedelta(seconds=AHEAD)
        offset = database.clock_offset()
        database.defer(jobs, kind="benchmarks.mark", start=start, step=1 / RATE)

        def late(mark: tuple[int, int]) -> float:
            number, at = mark
            return (at / 1e9 + offset - start.timestamp() - number / RATE) * 1000

        with (
            Marks() as marks,
            processes.worker(database, "--queues", "bench-0", environment=marks.environment),
        ):
            give_up_at = time.monotonic() + PATIENCE
            while not (newest := marks.since(-RATE)) or late(newest[-1]) > CAUGHT_UP_MS:
                if time.monotonic() > give_up_at:
                    raise TimeoutError("the worker did not catch up with what fell due")
                time.sleep(0.1)
            time.sleep(2)
            began = marks.count
            time.sleep(seconds)
            late_ms = [late(mark) for mark in marks.since(began)]
        assert len(late_ms) > seconds * RATE / 2, f"only {len(late_ms)} jobs ran in {seconds} s"
        return {"p50 ms": percentile(late_ms, 0.5), "p99 ms": percentile(late_ms, 0.99)}

    return measure


def defer_to_instant(database: Database, jobs: int) -> datetime:
    """All due at once, soon; the instant."""
    instant = database.now() + timedelta(seconds=AHEAD)
    database.defer(jobs, start=instant, step=0.0)
    assert database.now() < instant, "it took too long to put the jobs in"
    return instant


def wait_until_none(database: Database, table: LiteralString, instant: datetime) -> float:
    """Until the table has no job that waits; seconds from the instant until then, by the database's clock."""
    query = f"SELECT EXISTS (SELECT FROM {table} WHERE state IN ('scheduled', 'available', 'running'))"
    give_up_at = time.monotonic() + AHEAD + PATIENCE
    while database.now() < instant or database.one(query) == (True,):
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"there are still jobs in {table}")
        time.sleep(0.02)
    return (database.now() - instant).total_seconds()
