"""A primary that dies, and its standby that takes over: nobody is restarted, nothing acknowledged is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awa_django.worker.database import Session, is_connection_error
from tests.clusters import Cluster, cluster
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt, VisitDoctor
from tests.producer_process import Producer
from tests.proxy import Proxy
from tests.waiting import wait_until
from tests.worker_fixtures import Database

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
SOON = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 6.0, "SWEEP_INTERVAL": 0.5}


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary whose commits wait for its standby, and that standby."""
    with cluster(synchronous_standby_names="standby", synchronous_commit="on") as primary:
        standby = primary.standby("standby")
        try:
            with primary.connect() as connection:
                wait_until(
                    lambda: connection.execute(
                        "SELECT true FROM pg_stat_replication WHERE sync_state = 'sync'"
                    ).fetchone()
                )
            yield primary, standby
        finally:
            standby.remove()


def both_of(first: Cluster, second: Cluster) -> dict[str, str]:
    """The environment that names two hosts, whichever is the primary."""
    user = first.url.split("@")[0]
    hosts = "127.0.0.1,127.0.0.1"
    return {
        "DATABASE_URL": f"{user}@/postgres?host={hosts}&target_session_attrs=read-write",
        "PGPORT": f"{first.port},{second.port}",
    }


@pytest.mark.fault("F28", injected="the primary is killed under load, its synchronous standby promoted")
def test_failover_loses_nothing_acknowledged(
    pair: tuple[Cluster, Cluster],
    worker_env: dict[str, str],
    start_worker_at: StartWorkerAt,
    visit_doctor: VisitDoctor,
    tmp_path: Path,
    observe: Observe,
) -> None:
    primary, standby = pair
    env = both_of(standby, primary)  # the first that is asked is read-only
    worker = start_worker_at(env["DATABASE_URL"], env=env, awa=SOON)
    producer = Producer({**worker_env, **env}, tmp_path / "producer.log")
    try:
        wait_until(lambda: len(producer.acknowledged()) > 100, message=worker.text)
        with primary.connect() as connection:
            wait_until(lambda: len(Database(connection).effects("record")) > 50)
        primary.stop(signal.SIGKILL)
        before = len(producer.acknowledged())
        time.sleep(1.0)  # everybody finds only the read-only standby
        standby.promote()
        promoted_at = time.monotonic()
        with standby.connect() as connection:
            database = Database(connection)
            seen = set(database.effects("record"))
            wait_until(lambda: set(database.effects("record")) - seen, message=worker.text)
            took = time.monotonic() - promoted_at
            wait_until(lambda: len(producer.acknowledged()) > before + 100)
            acknowledged = producer.stop()
            wait_until(lambda: set(database.states()) == {"completed"}, message=worker.text)
            assert worker.stop() == 0
            done = database.effects("record")
            assert set(acknowledged) <= set(done)
            enqueued = database.value("SELECT count(*) FROM awa.jobs WHERE kind LIKE '%%record'")
            assert database.value("SELECT max(cardinality(errors)) FROM awa.jobs") <= 1
        visit_doctor(env["DATABASE_URL"], env)
    finally:
        producer.end()
    observe(
        f"{len(acknowledged)} jobs acknowledged, {enqueued} in the table, 0 lost; "
        f"first job {took:.1f} s after the promotion, nothing restarted"
    )


@pytest.mark.fault("F28", injected="a session leads to a read-only standby, which is promoted later")
def test_read_only_standby_is_refused(pair: tuple[Cluster, Cluster], observe: Observe) -> None:
    _, standby = pair
    session = Session("test-session", conninfo=standby.url)
    with pytest.raises(psycopg.OperationalError, match="read-only") as refused, session.use():
        pass
    assert is_connection_error(refused.value)
    standby.promote()
    with session.use() as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    session.close()
    observe("refused by the client until the promotion")


@pytest.mark.slow
@pytest.mark.fault("F28", injected="the primary's address leads to the standby, read-only at first")
def test_worker_waits_for_the_promotion(
    pair: tuple[Cluster, Cluster], start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    primary, standby = pair
    with Proxy(primary.url) as proxy:
        worker = start_worker_at(proxy.url, awa=SOON)
        with primary.connect() as connection:
            worker.wait_ready(connection)
        primary.stop(signal.SIGKILL)
        proxy.lead_to(standby.url)
        before = len(worker.text().splitlines())
        tried = proxy.accepted.total()
        wait_until(lambda: proxy.accepted.total() > tried + 10, message=worker.text)
        standby.promote()
        promoted_at = time.monotonic()
        with standby.connect() as connection:
            database = Database(connection)
            enqueue(connection, 1)
            wait_until(lambda: database.effects("record") == [1], message=worker.text)
            took = time.monotonic() - promoted_at
            wait_until(lambda: database.states() == {"completed": 1}, message=worker.text)
            assert database.value("SELECT cardinality(errors) FROM awa.jobs") == 0
        assert worker.stop() == 0
    lines = len(worker.text().splitlines()) - before
    assert took < 16
    observe(f"ran {took:.1f} s after the promotion; {lines} lines of log")


def enqueue(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute(
        "INSERT INTO awa.jobs (kind, args) "
        "VALUES ('tests.handlers.record', jsonb_build_object('number', %s::int))",
        [number],
    )
