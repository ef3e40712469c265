"""A transaction pooler with five connections between everybody and PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction
from django.test import override_settings

from awa_django import Unique
from awa_django.doctor import measure, measures
from awa_django.operations import cancel
from awa_django.storage import prepared
from tests import handlers
from tests.clusters import Cluster
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt, VisitDoctor, django_at
from tests.poolers import pooler
from tests.waiting import wait_until
from tests.worker_fixtures import Database

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

AWA = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5}
WARNING = "notifications do not arrive here"


@pytest.fixture
def pooled(own_cluster: Cluster) -> Iterator[str]:
    with pooler(own_cluster.url, pool_size=5) as url, django_at(url):
        yield url


def left_in_its_sessions(pooled: str) -> set[tuple[object, ...]]:
    """How others find the sessions of the pooler: what a worker sets in its own, and statements."""
    found = set()
    with contextlib.ExitStack() as stack:
        for _ in range(5):  # a transaction each, at once: all of its sessions
            session = stack.enter_context(psycopg.connect(pooled, prepare_threshold=None))
            row = session.execute(
                "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan'), "
                "current_setting('enable_bitmapscan'), current_setting('jit'), "
                "(SELECT count(*)::integer FROM pg_prepared_statements)"
            ).fetchone()
            assert row is not None
            found.add(row)
    return found


@pytest.mark.fault(
    "F30", injected="pgbouncer in transaction mode with 5 connections, for producers and workers"
)
@pytest.mark.fault("U26", injected="the same: every step of a job's life through the pooler")
def test_everything_works_through_a_transaction_pooler(
    pooled: str,
    own_cluster: Cluster,
    own_database: Database,
    start_worker_at: StartWorkerAt,
    visit_doctor: VisitDoctor,
    observe: Observe,
) -> None:
    database = own_database
    for number in range(20):
        handlers.record.enqueue(number=number)
    handlers.record.enqueue_many([{"number": number} for number in range(20, 120)])
    handlers.record.using(delay=0.3).enqueue(number=120)
    keyed = handlers.record.using(unique=Unique(args=True))
    assert [keyed.enqueue(number=121).created for _ in range(2)] == [True, False]
    with transaction.atomic():
        handlers.record.enqueue(number=122)
        transaction.set_rollback(True)
    with transaction.atomic():
        handlers.record.enqueue(number=123)
    for number in range(10):
        handlers.fail_once.enqueue(number=number)
        handlers.atomic_effect.enqueue(number=number)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, kind, args, last_enqueued_at) "
            "VALUES ('pooled', '* * * * *', 'tests.handlers.record', '{\"number\": 124}', "
            "now() - interval '5 min')"
        )
    doomed = handlers.until_cancelled.enqueue()
    killed = handlers.sleep_first.enqueue(seconds=60, number=1)
    worker = start_worker_at(pooled, "--concurrency", "8", awa=AWA)
    wait_until(
        lambda: database.effects("started") and database.job(doomed.id)["state"] == "running",
        message=worker.text,
    )
    assert cancel(doomed.id).changed == (doomed.id,)
    wait_until(lambda: database.effects("saw the cancel"), message=worker.text)
    wait_until(lambda: len(database.effects("started")) >= 2, message=worker.text)
    (child,) = worker.child_pids()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: 124 in database.effects("record"), message=worker.text)
    wait_until(lambda: set(database.states()) == {"completed", "cancelled"}, message=worker.text)
    wait_until(lambda: WARNING in worker.text(), message=worker.text)
    assert worker.stop() == 0
    assert sorted(set(database.effects("record"))) == [*range(122), 123, 124]
    assert set(database.effects("fail_once")) == set(database.effects("atomic")) == set(range(10))
    assert len(database.effects("atomic")) == 10
    assert database.job(killed.id)["run_lease"] == 2
    assert worker.text().count(WARNING) == 1
    assert "prepared statement" not in worker.text()
    assert left_in_its_sessions(pooled) == {("auto", "on", "on", "on", 0)}
    visit_doctor(own_cluster.url)
    observe(
        f"{sum(database.states().values())} jobs enqueued singly, in bulk, by schedule, for later, unique "
        "and atomic; cancelled, retried, their child killed: all accounted for, with one warning"
    )


def test_producer_prepares_nothing_through_a_transaction_pooler(pooled: str) -> None:
    for number in range(2 * prepared.THRESHOLD):
        handlers.record.enqueue(number=number)
    assert prepared._direct[connection.connection] is False
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchall() == [(0,)]


@pytest.mark.fault("F30", injected="the same, with LISTEN_URL leading past the pooler")
def test_listen_url_leads_past_the_pooler(
    pooled: str,
    own_cluster: Cluster,
    own_database: Database,
    start_worker_at: StartWorkerAt,
    observe: Observe,
) -> None:
    slow_poll = {"POLL_INTERVAL": 5.0}
    polling = start_worker_at(pooled, "--queues", "default", awa=slow_poll)
    slow = max(pickups(own_database))
    assert polling.stop() == 0
    listening = start_worker_at(pooled, awa={**slow_poll, "LISTEN_URL": own_cluster.url})
    quick = min(pickups(own_database))
    assert listening.stop() == 0
    assert WARNING in polling.text()
    assert WARNING not in listening.text()
    assert quick < 1.0 < slow <= 15
    observe(
        f"an idle worker starts a job after {quick:.2f} s, without LISTEN_URL after {slow:.2f} s (poll 5 s)"
    )


def pickups(database: Database) -> tuple[float, float]:
    """How long two jobs wait for a worker that has been idle for a while, in seconds."""
    with database.connection.cursor() as cursor:
        cursor.execute("TRUNCATE effects")
    handlers.record.enqueue(number=0)
    wait_until(lambda: database.effects("record") == [0])
    time.sleep(4.5)  # idle: it waits for a notification, and polls seldom
    return _enqueue_and_wait(database, 1), _enqueue_and_wait(database, 2, after=3.0)


def _enqueue_and_wait(database: Database, number: int, *, after: float = 0.0) -> float:
    time.sleep(after)
    began = time.monotonic()
    handlers.record.enqueue(number=number)
    wait_until(lambda: number in database.effects("record"))
    return time.monotonic() - began


def test_doctor_says_that_no_notification_comes_through_the_pooler(
    pooled: str, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(measures, "NOTIFIED_AT_ALL", 1.0)
        measured = measure()
    assert measured.notify_seconds is None
    assert "notify" in [finding.name for finding in measured.findings]
    monkeypatch.setattr(measures, "NOTIFIED_AT_ALL", 30.0)
    monkeypatch.setattr(measures, "NOTIFIED_WITHIN", 30.0)
    with override_settings(AWA={"LISTEN_URL": own_cluster.url}):
        measured = measure()
    assert measured.notify_seconds is not None
    assert "notify" not in [finding.name for finding in measured.findings]
