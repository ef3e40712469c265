"""How many jobs a second a worker runs, with one child and with two, when all of them are due already."""

from __future__ import annotations

from benchmarks import floor, peer, processes
from benchmarks.database import NOTHING, Database
from benchmarks.harness import Bench, Contender, Plan

NOTHING_ASYNC, WAIT, WAIT_ASYNC = "benchmarks.nothing_async", "benchmarks.wait", "benchmarks.wait_async"
IO_CONCURRENCY = 32


def drain(bench: Bench) -> Plan:
    database, jobs = bench.database(), bench.size(20_000, quick=4_000)
    return Plan(
        title=f"Drain {jobs:,} no-op jobs",
        contenders={
            "floor": by_floor(database, jobs),
            "awa": by_worker(database, jobs),
            "awa, async": by_worker(database, jobs, kind=NOTHING_ASYNC),
            "floor, 2 processes": by_floor(database, jobs, processes_=2),
            "awa, 2 children": by_worker(database, jobs, "--processes", "2"),
            "awa, async, 2 children": by_worker(database, jobs, "--processes", "2", kind=NOTHING_ASYNC),
        },
        peers={
            f"{other.name}{', 2 processes' * (workers > 1)}": peer.drain(bench, other, jobs, workers=workers)
            for other in bench.peers
            for workers in (1, 2)
        },
    )


def drain_io(bench: Bench) -> Plan:
    """No floor: its loop does one thing at a time."""
    database, jobs = bench.database(), bench.size(10_000, quick=2_000)
    options = ["--concurrency", str(IO_CONCURRENCY)]
    two = [*options, "--processes", "2"]
    return Plan(
        title=f"Drain {jobs:,} jobs that wait for 1 ms, {IO_CONCURRENCY} at once in a child",
        contenders={
            "awa": by_worker(database, jobs, *options, kind=WAIT),
            "awa, async": by_worker(database, jobs, *options, kind=WAIT_ASYNC),
            "awa, 2 children": by_worker(database, jobs, *two, kind=WAIT),
            "awa, async, 2 children": by_worker(database, jobs, *two, kind=WAIT_ASYNC),
        },
        most_rounds=3,
    )


def by_worker(
    database: Database, jobs: int, *arguments: str, kind: str = NOTHING, queues: int = 1
) -> Contender:
    """A new worker drains the database; what else it holds stays."""
    names = ",".join(f"bench-{number}" for number in range(queues))

    def measure() -> dict[str, float]:
        database.empty()
        mark = database.fill(jobs, kind=kind, queues=queues)
        processes.drain(database, "--queues", names, *arguments)
        return {"jobs/s": database.drain_rate(mark, jobs)}

    return measure


def by_floor(database: Database, jobs: int, *, processes_: int = 1) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        database.connection.execute(floor.FILL, [jobs])
        database.connection.execute("VACUUM ANALYZE bench_floor")
        with processes.floors(database, "drain", processes=processes_) as started:
            for process in started:
                process.wait()
        done, seconds = database.one(floor.RATE)
        assert done == jobs, f"{done} of {jobs} jobs are done"
        return {"jobs/s": done / seconds}

    return measure
