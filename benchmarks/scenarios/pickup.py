"""How soon an idle worker starts a job: from the enqueue's return (its commit) to the handler."""

from __future__ import annotations

from benchmarks import peer, processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan
from benchmarks.marks import Marks
from benchmarks.pacing import latencies

PATIENCE = 30.0


def pickup(bench: Bench) -> Plan:
    jobs = bench.size(100, quick=20)
    database = bench.database()
    return Plan(
        title=f"Pick-up of {jobs} jobs, one at a time, by an idle worker",
        contenders={"floor": by_floor(database, jobs), "awa": by_worker(database, jobs)},
        peers={other.name: peer.pickup(bench, other, jobs) for other in bench.peers},
        most_rounds=3,
    )


def by_worker(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with (
            Marks() as marks,
            processes.worker(database, "--queues", "bench-0", environment=marks.environment),
        ):
            return latency(database, marks, "awa-paced", jobs)

    return measure


def by_floor(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with Marks() as marks, processes.floors(database, "serve", "mark", environment=marks.environment):
            return latency(database, marks, "floor-paced", jobs)

    return measure


def latency(database: Database, marks: Marks, mode: str, jobs: int) -> dict[str, float]:
    (told,) = processes.produce(database, mode, jobs)
    marks.wait_for(jobs, timeout=PATIENCE)
    return latencies(told["jobs"], dict(marks.since(0)))
