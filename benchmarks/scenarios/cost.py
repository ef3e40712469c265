"""What a job costs the database, counted: the same on every machine."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import floor, processes
from benchmarks.database import Database
from benchmarks.harness import Bench, Contender, Plan

STATEMENT = re.compile(rb" LOG:  (?:statement|execute [^:]*): ")
SETTLE = 5.0


def cost(bench: Bench) -> Plan:
    """Statements are counted in the server's log: only where the benchmarks have started it."""
    database, jobs = bench.database(), bench.size(20_000, quick=4_000)
    seconds = bench.size(20, quick=5)
    return Plan(
        title=f"The cost of each of {jobs:,} jobs, put in at once and run; {seconds} s of an idle worker",
        contenders={
            "floor": by_floor(database, jobs),
            "awa": by_worker(database, jobs),
            "awa, idle": by_idle_worker(database, seconds),
        },
        most_rounds=2,
    )


def by_floor(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with without_page_images(database), logging_statements(database):
            before = Counters.of(database)
            database.connection.execute(floor.FILL, [jobs])
            filled = Counters.of(database)
            with processes.floors(database, "drain") as started:
                started[0].wait()
            after = Counters.of(database)
        return {"WAL bytes/job": (after.wal - before.wal) / jobs, **after.since(filled, jobs, "/job")}

    return measure


def by_worker(database: Database, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with without_page_images(database), logging_statements(database):
            before = Counters.of(database)
            processes.produce(database, "awa-many", jobs)
            filled = Counters.of(database)
            processes.drain(database, "--queues", "bench-0")
            after = Counters.of(database)
        return {"WAL bytes/job": (after.wal - before.wal) / jobs, **after.since(filled, jobs, "/job")}

    return measure


def by_idle_worker(database: Database, seconds: int) -> Contender:
    def measure() -> dict[str, float]:
        database.empty()
        with logging_statements(database), processes.worker(database, "--queues", "bench-0"):
            time.sleep(SETTLE)
            before = Counters.of(database)
            time.sleep(seconds)
            return Counters.of(database).since(before, seconds, "/s")

    return measure


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server has counted so far; ``statements`` only where its log can be read."""

    wal: int
    transactions: int
    statements: int | None

    @classmethod
    def of(cls, database: Database) -> Counters:
        wal, transactions = database.one(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, xact_commit "
            "FROM pg_stat_database WHERE datname = current_database()"
        )
        log = database.server.log
        return cls(wal, transactions, len(STATEMENT.findall(log.read_bytes())) if log else None)

    def since(self, before: Counters, by: int, suffix: str) -> dict[str, float]:
        told = {f"transactions{suffix}": (self.transactions - before.transactions) / by}
        if self.statements is not None and before.statements is not None:
            told[f"statements{suffix}"] = (self.statements - before.statements) / by
        return told


@contextlib.contextmanager
def logging_statements(database: Database) -> Iterator[None]:
    """Every statement of the sessions that begin here goes to the log of a server of ours."""
    if database.server.log is None:
        yield
        return
    database.set_for_new_sessions("log_statement", "all")
    try:
        yield
    finally:
        database.set_for_new_sessions("log_statement", None)


@contextlib.contextmanager
def without_page_images(database: Database) -> Iterator[None]:
    """No full-page images, which depend on checkpoints. A server that is not ours is left as it is."""
    if database.server.log is None:
        yield
        return
    database.set_for_server("full_page_writes", "off")
    try:
        yield
    finally:
        database.set_for_server("full_page_writes", None)
