"""Whether a worker becomes slower while a transaction of somebody else holds a snapshot for minutes.

As many jobs are put in as have run. The dead versions of their rows can not be removed: who walks
over them to find the next job gets slower and slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg

from benchmarks import floor, processes
from benchmarks.database import FILL, Database
from benchmarks.harness import Bench, Contender, Plan
from benchmarks.marks import Marks

WARM_UP = 3.0
WAITING = 5_000
BATCH = 1_000


def pinned(bench: Bench) -> Plan:
    database, seconds = bench.database(), bench.size(120, quick=12)
    window = bench.size(10, quick=3)

    def by_floor(marks: Marks) -> AbstractContextManager[object]:
        return processes.floors(database, "serve", "mark", environment=marks.environment)

    def by_worker(marks: Marks) -> AbstractContextManager[object]:
        return processes.worker(database, "--queues", "bench-0", environment=marks.environment)

    def feed_floor() -> None:
        database.connection.execute(floor.FILL, [BATCH])

    def feed_awa() -> None:
        database.connection.execute(FILL, {"kind": "benchmarks.mark", "queues": 1, "count": BATCH})

    return Plan(
        title=f"A closed loop for {seconds} s under a snapshot, its first and its last {window} s",
        contenders={
            "floor": closed_loop(database, by_floor, feed_floor, seconds, window),
            "awa": closed_loop(database, by_worker, feed_awa, seconds, window),
        },
        most_rounds=3,
    )


def closed_loop(
    database: Database,
    work: Callable[[Marks], AbstractContextManager[object]],
    feed: Callable[[], None],
    seconds: int,
    window: int,
) -> Contender:
    """``WAITING`` jobs always wait."""

    def measure() -> dict[str, float]:
        database.empty()
        with psycopg.connect(database.url) as pinning, Marks() as marks, work(marks):
            pinning.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            pinning.execute("SELECT 1")
            fed = 0
            end_at = time.monotonic() + WARM_UP + seconds
            while time.monotonic() < end_at:
                if fed - marks.count < WAITING:
                    feed()
                    fed += BATCH
                else:
                    time.sleep(0.005)
            times = [at for _, at in marks.since(0)]
        last = times[-1]
        first_rate = rate(times, last - int((seconds) * 1e9), window)
        last_rate = rate(times, last - int(window * 1e9), window)
        return {
            "last to first": last_rate / first_rate,
            "jobs/s at first": first_rate,
            "jobs/s at last": last_rate,
        }

    return measure


def rate(times: list[int], start: int, seconds: int) -> float:
    return sum(start <= at < start + seconds * 1e9 for at in times) / seconds
