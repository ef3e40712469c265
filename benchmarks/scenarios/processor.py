"""How much processor time a job takes, in the worker and in the server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psutil

from benchmarks import floor, processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan

LOOK_EVERY = 0.02


def processor(bench: Bench) -> Plan:
    """Times of the server's processes are read in /proc: only where it runs on this machine."""
    database, jobs = bench.database(), bench.size(50_000, quick=10_000)
    return Plan(
        title=f"Processor time of each of {jobs:,} no-op jobs in a drain, without that of a start",
        contenders={
            "floor": by_floor(database, jobs),
            "awa": by_worker(database, jobs),
            "awa, async": by_worker(database, jobs, kind="benchmarks.nothing_async"),
        },
        most_rounds=3,
    )


def by_floor(database: Database, jobs: int) -> Contender:
    def fill(count: int) -> None:
        database.empty()
        database.connection.execute(floor.FILL, [count])
        database.connection.execute("VACUUM ANALYZE bench_floor")

    def drain() -> None:
        with processes.floors(database, "drain") as started:
            started[0].wait()

    return lambda: per_job(database, jobs, fill, drain)


def by_worker(database: Database, jobs: int, kind: str = "benchmarks.nothing") -> Contender:
    def fill(count: int) -> None:
        database.empty()
        if count:
            database.fill(count, kind=kind)

    return lambda: per_job(database, jobs, fill, lambda: processes.drain(database, "--queues", "bench-0"))


def per_job(
    database: Database, jobs: int, fill: Callable[[int], None], drain: Callable[[], None]
) -> dict[str, float]:
    """A drain of nothing is a start and an end: what more a drain of ``jobs`` takes is theirs."""
    used: list[tuple[float, float]] = []
    for count in (0, jobs):
        fill(count)
        before = server_time(database)
        with watching_children() as client:
            drain()
        used.append((sum(client.values()), server_time(database) - before))
    (client_start, server_start), (client_all, server_all) = used
    in_worker, in_server = (client_all - client_start) / jobs, (server_all - server_start) / jobs
    told = {"us/job in the worker": in_worker * 1e6}
    if server_all:
        told |= {"us/job in the server": in_server * 1e6, "us/job": (in_worker + in_server) * 1e6}
    return told


@contextlib.contextmanager
def watching_children() -> Iterator[dict[int, float]]:
    """Seconds of processor time of each process that descends from this one, by its id, as last seen.

    Looked at again and again: not every parent waits for its children, which would add theirs to its own.
    """
    seen: dict[int, float] = {}
    stopped = threading.Event()

    def watch() -> None:
        this = psutil.Process()
        while not stopped.wait(LOOK_EVERY):
            for process in this.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    seen[process.pid] = own_time(process)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopped.set()
        thread.join()


def server_time(database: Database) -> float:
    """Seconds that all processes of the server have used; zero where they cannot be seen from here."""
    with contextlib.suppress(psutil.Error):
        postmaster = psutil.Process(database.connection.info.backend_pid).parent()
        if postmaster is not None and "postgres" in postmaster.name():
            ended = postmaster.cpu_times()
            total = own_time(postmaster) + ended.children_user + ended.children_system
            for process in postmaster.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += own_time(process)
            return total
    return 0.0


def own_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
