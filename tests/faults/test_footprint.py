"""What a worker takes: transactions while it idles, memory while it works."""

from __future__ import annotations

import time
from typing import Any

import psutil
import psycopg
import pytest

from tests import handlers
from tests.clusters import cluster
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker, Workers

Postgres = psycopg.Connection[Any]


def statements(database: Database) -> int:
    database.connection.execute("SELECT pg_stat_force_next_flush()")
    count: int = database.value(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    )
    return count


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.fault(
    "U51", injected="one and two idle workers with 10 queues: transactions counted by the server"
)
def test_idle_worker_asks_little(start_worker_at: StartWorkerAt, observe: Observe) -> None:
    queues = ",".join(f"q{number}" for number in range(10))

    def rate(database: Database) -> float:
        """Transactions a second, of some seconds with few others in them."""
        rates = []
        for _ in range(2):
            before = statements(database)
            time.sleep(6)
            rates.append((statements(database) - before) / 6)
        return min(rates)

    # On a server of its own: elsewhere what the server does by itself (vacuums) is counted too.
    with cluster(autovacuum="off") as server, server.connect() as connection:
        database = Database(connection)
        worker = start_worker_at(server.url, "--queues", queues, awa={"PROMOTE_INTERVAL": 0.25})
        worker.wait_ready(connection)
        time.sleep(8)  # from busy to idle: the waits grow
        leader = rate(database)
        other = start_worker_at(server.url, "--queues", queues, awa={"PROMOTE_INTERVAL": 0.25})
        other.wait_ready(connection, children=2)
        time.sleep(3)
        both = rate(database)
        assert worker.stop() == other.stop() == 0
    assert leader < 6.5
    assert both - leader < 3
    observe(
        f"{leader:.1f} transactions a second by the worker that leads, of which promotion looks make 2; "
        f"{both - leader:.1f} by each further one"
    )


@pytest.fixture
def start_plain_worker(plain: Database, workers: Workers) -> StartWorker:
    """As ``start_worker``, beside no audit."""
    return workers.start


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(1800)
@pytest.mark.fault("U54", injected="30,000 and 500,000 no-op jobs through one worker: memory early and late")
@pytest.mark.parametrize(("early", "late"), [(10_000, 30_000), (50_000, 500_000)], ids=["small", "full size"])
def test_memory_of_a_worker_is_flat(
    early: int, late: int, plain: Database, start_plain_worker: StartWorker, observe: Observe
) -> None:
    worker = start_plain_worker("--concurrency", "16", awa={"RETENTION": {"completed": 0}})
    worker.wait_ready(plain.connection)

    def run(count: int) -> float:
        handlers.nothing.enqueue_many({} for _ in range(count))
        wait_until(
            lambda: plain.value("SELECT count(*) FROM awa.jobs_hot") == 0, timeout=240, message=worker.text
        )
        pids = [worker.pid, *worker.child_pids()]
        return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6

    run(2_000)
    before = run(early - 2_000)
    for _ in range(early, late, 10_000):
        after = run(10_000)
    assert worker.stop() == 0
    assert after < before * 1.1
    observe(f"{before:.0f} MB after {early:,} jobs, {after:.0f} MB after {late:,}")
