"""python -m benchmarks.drain: the drain rate against the floor, and with a million deferred jobs."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import environment, floor

PROJECT_DIR = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs drained in each round")
    parser.add_argument("--deferred", type=int, default=1_000_000, help="jobs scheduled for tomorrow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()

    environment.prepare()
    from awa_django.worker.database import connect  # both need Django
    from benchmarks import jobs

    rates: dict[str, list[float]] = {"floor": [], "awa": [], "awa async": [], "awa, deferred": []}
    with connect("bench") as connection:
        for number in range(given.rounds):
            floor.fill(connection, given.jobs)
            rates["floor"].append(floor.drain(connection))
            empty(connection)
            rates["awa"].append(drain(connection, jobs.nothing, given))
            empty(connection)
            rates["awa async"].append(drain(connection, jobs.nothing_async, given))
            empty(connection)
            defer(connection, given.deferred)
            rates["awa, deferred"].append(drain(connection, jobs.nothing, given))
            print(
                f"round {number + 1}: " + ", ".join(f"{name} {each[-1]:,.0f}" for name, each in rates.items())
            )
        empty(connection)
    report(rates)


def empty(connection: psycopg.Connection[Any]) -> None:
    connection.execute("TRUNCATE awa.jobs_hot, awa.scheduled_jobs")


def defer(connection: psycopg.Connection[Any], count: int) -> None:
    """So many jobs for tomorrow and the days after."""
    connection.execute(
        "INSERT INTO awa.scheduled_jobs (kind, args, run_at) "
        "SELECT 'benchmarks.jobs.nothing', jsonb_build_object('number', n), "
        "now() + interval '1 day' + n * interval '1 second' FROM generate_series(1, %s) AS n",
        [count],
    )
    connection.execute("VACUUM ANALYZE awa.scheduled_jobs")


def drain(connection: psycopg.Connection[Any], job: Any, given: argparse.Namespace) -> float:
    """Enqueue, run a real worker until nothing is due; jobs per second by the database's clock."""
    job.enqueue_many([{"number": number} for number in range(given.jobs)])
    connection.execute("VACUUM ANALYZE awa.jobs_hot")
    command = [sys.executable, str(PROJECT_DIR / "manage.py"), "awa_worker", "--drain"]
    subprocess.run([*command, "--processes", str(given.processes)], check=True, cwd=PROJECT_DIR)
    row = connection.execute(
        "SELECT count(*), extract(epoch FROM max(finalized_at) - min(attempted_at)) "
        "FROM awa.jobs_hot WHERE state = 'completed'"
    ).fetchone()
    assert row is not None
    assert row[0] == given.jobs, f"{row[0]} of {given.jobs} jobs completed"
    return float(row[0] / row[1])


def report(rates: dict[str, list[float]]) -> None:
    base = statistics.median(rates["floor"])
    awa = statistics.median(rates["awa"])
    print(f"\n{'':16}{'median':>10}{'range':>20}{'to floor':>10}{'to awa':>10}")
    for name, each in rates.items():
        median = statistics.median(each)
        spread = f"{min(each):,.0f} - {max(each):,.0f}"
        print(f"{name:16}{median:>10,.0f}{spread:>20}{median / base:>10.2f}{median / awa:>10.2f}")


if __name__ == "__main__":
    main()
