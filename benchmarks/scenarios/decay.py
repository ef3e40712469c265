"""Whether a drain is slower beside what is deferred, what is kept, and with many queues."""

from __future__ import annotations

from functools import partial
from typing import LiteralString

from benchmarks import peer
from benchmarks.database import Database
from benchmarks.harness import Bench, Plan
from benchmarks.scenarios.drain import by_worker

# Divided by each number of queues: as many jobs at once with any of them.
QUEUES = (1, 4, 16, 64)
CONCURRENCY = 64
KEEP: LiteralString = """
INSERT INTO awa.jobs_hot
    (kind, queue, args, state, attempt, run_lease, attempted_at, finalized_at, created_at, worker)
SELECT 'benchmarks.nothing', 'bench-0', jsonb_build_object('number', n), 'completed', 1, 1,
    now(), now(), now() - interval '1 hour', 'host:12345:abcdef/1'
FROM generate_series(1, %s) AS n
"""


def deferred(bench: Bench) -> Plan:
    """Databases of their own: nothing is filled between the rounds."""
    jobs = bench.size(20_000, quick=4_000)
    contenders = {"without": by_worker(bench.database(), jobs)}
    for count in (bench.size(1_000_000, quick=20_000), bench.size(5_000_000, quick=50_000)):
        database = bench.database(f"deferred_{count}", partial(defer, count=count))
        contenders[f"{count:,} deferred"] = by_worker(database, jobs)
    return Plan(
        title=f"Drain {jobs:,} no-op jobs beside jobs for tomorrow and later",
        contenders=contenders,
        peers={
            f"{other.name}, {count:,} deferred" if count else other.name: peer.drain(
                bench, other, jobs, deferred=count
            )
            for other in bench.peers
            if other.share == 1  # the others would need an hour to put them in
            for count in (0, bench.size(1_000_000, quick=20_000))
        },
    )


def history(bench: Bench) -> Plan:
    jobs, count = bench.size(20_000, quick=4_000), bench.size(2_000_000, quick=50_000)
    database = bench.database("history", partial(keep, count=count))
    return Plan(
        title=f"Drain {jobs:,} no-op jobs beside {count:,} that have completed and are kept",
        contenders={"without": by_worker(bench.database(), jobs), "kept": by_worker(database, jobs)},
    )


def queues(bench: Bench) -> Plan:
    database, jobs = bench.database(), bench.size(20_000, quick=4_000)
    return Plan(
        title=f"Drain {jobs:,} no-op jobs of several queues, {CONCURRENCY} at once in all",
        contenders={
            f"{count} queue" + "s" * (count > 1): by_worker(
                database, jobs, "--concurrency", str(CONCURRENCY), queues=count
            )
            for count in QUEUES
        },
    )


def defer(database: Database, count: int) -> None:
    (tomorrow,) = database.one("SELECT now() + interval '1 day'")
    database.defer(count, start=tomorrow)
    database.kept = ("awa.scheduled_jobs",)


def keep(database: Database, count: int) -> None:
    database.connection.execute(KEEP, [count])
    database.connection.execute("VACUUM ANALYZE awa.jobs_hot")
    database.kept = ("awa.jobs_hot",)
