"""How many jobs a second are put in: one by one, many at once, and by eight processes beside workers."""

from __future__ import annotations

from benchmarks import peer, processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan

PRODUCERS = 8
# Eight of them at once keep a child busy for as long as the producers need.
NAPS = 4_000


def enqueue(bench: Bench) -> Plan:
    database, jobs = bench.database(), bench.size(2_000, quick=500)
    return Plan(
        title=f"Enqueue {jobs:,} jobs one by one, each in a transaction of its own",
        contenders={"bare INSERT": by(database, "bare", jobs), "awa": by(database, "awa", jobs)},
        peers={other.name: peer.enqueue(bench, other, jobs) for other in bench.peers},
    )


def enqueue_many(bench: Bench) -> Plan:
    database, jobs = bench.database(), bench.size(50_000, quick=10_000)
    return Plan(
        title=f"Enqueue {jobs:,} jobs at once",
        contenders={"bare COPY": by(database, "bare-copy", jobs), "awa": by(database, "awa-many", jobs)},
        peers={other.name: peer.enqueue(bench, other, jobs, "many") for other in bench.peers},
    )


def producers(bench: Bench) -> Plan:
    """Busy: all slots of the worker are taken. Idle: it runs each job at once, and waits to be told."""
    database, jobs = bench.database(), bench.size(500, quick=100)
    return Plan(
        title=f"Enqueue by {PRODUCERS} processes, {jobs:,} jobs each, beside one worker child",
        contenders={
            "worker busy, never told": beside_worker(database, "awa-silent", jobs, naps=NAPS),
            "worker busy": beside_worker(database, "awa", jobs, naps=NAPS),
            "worker idle, never told": beside_worker(database, "awa-silent", jobs),
            "worker idle": beside_worker(database, "awa", jobs),
        },
        most_rounds=3,
    )


def by(database: Database, mode: str, jobs: int) -> Contender:
    """One producer, and no worker."""

    def measure() -> dict[str, float]:
        database.empty()
        return {"jobs/s": rate(database, mode, jobs)}

    return measure


def beside_worker(database: Database, mode: str, jobs: int, *, naps: int = 0) -> Contender:
    """Several producers; the worker has ``naps`` jobs of a tenth of a second to do."""

    def measure() -> dict[str, float]:
        database.empty()
        if naps:
            database.fill(naps, kind="benchmarks.nap")
        with processes.worker(database, "--queues", "bench-0"):
            return {"jobs/s": rate(database, mode, jobs, producers=PRODUCERS)}

    return measure


def rate(database: Database, mode: str, jobs: int, *, producers: int = 1) -> float:
    """Jobs a second from the first producer's beginning to the last one's end."""
    told = processes.produce(database, mode, jobs, producers=producers)
    (count,) = database.one("SELECT count(*) FROM awa.jobs_hot WHERE kind = 'benchmarks.nothing'")
    assert count == jobs * producers, f"{count} of {jobs * producers} jobs are there"
    seconds: float = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return jobs * producers / seconds
