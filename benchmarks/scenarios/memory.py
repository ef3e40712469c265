"""Whether a worker grows with the number of jobs that it has run."""

from __future__ import annotations

import psutil

from benchmarks import processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan
from benchmarks.marks import Marks

PATIENCE = 300.0


def memory(bench: Bench) -> Plan:
    early, late = bench.size(50_000, quick=5_000), bench.size(500_000, quick=20_000)
    return Plan(
        title=f"Memory of a worker after {early:,} jobs and after {late:,}",
        contenders={"awa": grow(bench.database(), early, late)},
        most_rounds=1,
    )


def grow(database: Database, early: int, late: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        database.fill(late, kind="benchmarks.mark")
        with (
            Marks() as marks,
            processes.worker(database, "--queues", "bench-0", environment=marks.environment) as worker,
        ):
            marks.wait_for(early, timeout=PATIENCE)
            before = resident(worker)
            marks.wait_for(late, timeout=PATIENCE)
            after = resident(worker)
        return {"growth": after / before - 1, "MiB early": before / 2**20, "MiB late": after / 2**20}

    return measure


def resident(worker: psutil.Process) -> int:
    """Resident bytes of the supervisor and its children; what they share counts more than once."""
    return sum(process.memory_info().rss for process in [worker, *worker.children(recursive=True)])
