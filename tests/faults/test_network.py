"""A network that swallows, cuts and loses what passes between a worker and its database."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError, connection

from awa_django import Unique
from awa_django.worker import database as database_module
from awa_django.worker import watchdog
from awa_django.worker.database import Session
from tests import handlers
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt, django_at
from tests.proxy import Mode, Proxy
from tests.waiting import wait_until
from tests.worker_fixtures import Database

pytestmark = pytest.mark.django_db(transaction=True)

# The sessions that are in use all the time.
AT_WORK = {"claim", "complete", "heartbeat", "leader", "listen", "promote", "reconcile"}
CLAIM = b"'awa.jobs_hot_claim'::regclass"


@pytest.mark.fault("F21", injected="the answer to a completion is lost, the connection cut")
def test_finish_whose_answer_was_lost_is_done(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    lost = proxy.add(Mode.DROP_REPLY, application="-complete", containing=b"'completed'", times=3)
    handlers.record.enqueue_many([{"number": number} for number in range(30)])
    worker = start_worker_at(proxy.url, "--concurrency", "4")
    wait_until(lambda: database.states() == {"completed": 30}, message=worker.text)
    assert worker.stop() == 0
    assert lost.caught == 3
    assert database.effects("record") == list(range(30))
    assert database.rows("SELECT DISTINCT attempt, run_lease, cardinality(errors) FROM awa.jobs") == [
        (1, 1, 0)
    ]
    assert "30 completed" in worker.text()
    assert "0 stale" in worker.text()
    assert "its run was over" not in worker.text()
    observe(f"{lost.caught} answers lost, 30 of 30 jobs counted as done, none as stale, none ran twice")


@pytest.mark.fault("F21", injected="the answers to 6 ends are lost, of every kind, and where nothing is kept")
def test_ends_of_every_kind_survive_lost_answers(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    lost = proxy.add(Mode.DROP_REPLY, application="-complete", containing=b"awa.", times=6)
    for number in range(4):
        handlers.record.enqueue(number=number)
        handlers.fail_once.enqueue(number=number)
    handlers.fail_for_good.enqueue()
    handlers.cancel_itself.enqueue()
    handlers.retry_after.enqueue()
    worker = start_worker_at(proxy.url, "--concurrency", "2", awa={"RETENTION": {"completed": 0}})
    wait_until(lambda: database.states() == {"failed": 2, "cancelled": 1}, message=worker.text)
    assert worker.stop() == 0
    assert lost.caught == 6
    assert database.effects("record") == database.effects("fail_once") == list(range(4))
    assert database.effects("retry_after") == [0, 0]
    assert "8 completed, 5 retried, 2 failed, 1 cancelled" in worker.text()
    assert "0 stale" in worker.text()
    observe("6 answers lost: 8 completed (and deleted), 5 retried, 2 failed, 1 cancelled; 0 stale")


@pytest.mark.fault("F21", injected="the answer to a claim is lost: 20 rows run that no process knows")
def test_claim_whose_answer_was_lost_is_given_back(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    worker = start_worker_at(proxy.url, "--concurrency", "20")
    worker.wait_ready(database.connection)
    lost = proxy.add(Mode.DROP_REPLY, application="-claim", containing=CLAIM, times=1)
    wait_until(lambda: lost.caught, message=worker.text)
    lost = proxy.add(Mode.DROP_REPLY, application="-claim", containing=CLAIM, times=1)
    handlers.record.enqueue_many([{"number": number} for number in range(20)])
    wait_until(lambda: "running" in database.states() or len(database.effects("record")) == 20)
    started_at = time.monotonic()
    wait_until(lambda: database.states() == {"completed": 20}, message=worker.text)
    took = time.monotonic() - started_at
    assert worker.stop() == 0
    assert database.effects("record") == list(range(20))
    assert database.rows("SELECT max(attempt), max(cardinality(errors)) FROM awa.jobs") == [(1, 0)]
    assert took < 30
    observe(f"given back uncharged and run after {took:.1f} s")


@pytest.mark.fault("F20", injected="each request of each session of a worker is cut off once")
def test_cut_requests_are_sent_again(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, tmp_path: Path, observe: Observe
) -> None:
    names = "claim complete heartbeat leader promote upkeep reconcile listen waiting"
    cuts = {
        name: proxy.add(Mode.CUT, application=f"-{name}", containing=b"awa", times=2)
        for name in names.split()
    }
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    handlers.record.using(delay=0.5).enqueue(number=50)
    go_on = tmp_path / "go on"
    handlers.until.enqueue(path=str(go_on), number=1)
    awa = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5}
    worker = start_worker_at(proxy.url, awa=awa)
    wait_until(lambda: all(cut.caught == 2 for cut in cuts.values()), message=worker.text)
    go_on.touch()
    wait_until(lambda: database.states() == {"completed": 52}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("record") == list(range(51))
    assert database.rows("SELECT DISTINCT attempt, run_lease FROM awa.jobs") == [(1, 1)]
    observe(f"{sum(cut.caught for cut in cuts.values())} requests cut, 52 jobs ran once each")


@pytest.mark.fault("F23", injected="the answer to an enqueue is lost")
def test_enqueue_whose_answer_was_lost(database: Database, proxy: Proxy, observe: Observe) -> None:
    with django_at(proxy.url):
        unique = handlers.record.using(unique=Unique(args=True))
        for producer in (handlers.record, unique):
            proxy.add(Mode.DROP_REPLY, containing=b"INSERT INTO awa.jobs_hot", times=1)
            with pytest.raises(OperationalError):
                producer.enqueue(number=1)
            connection.close()
        assert database.states() == {"available": 2}
        again = unique.enqueue(number=1)
        assert not again.created
        assert again.id == again.holder_id
        assert handlers.record.enqueue(number=1).created
    assert database.states() == {"available": 3}
    observe("the producer gets an OperationalError; again, a unique job is not created twice, others are")


@pytest.mark.slow
@pytest.mark.fault("F27", injected="every session of a worker is black-holed while it is in use")
def test_half_open_sessions_are_found(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    worker = start_worker_at(proxy.url, awa={"HEARTBEAT_INTERVAL": 3.0, "STALE_AFTER": 60.0})
    handlers.record.enqueue(number=0)
    wait_until(lambda: database.states() == {"completed": 1}, message=worker.text)
    handlers.nothing_after.enqueue(seconds=4.0)
    wait_until(lambda: database.states() == {"completed": 1, "running": 1}, message=worker.text)
    sessions = proxy.open_count
    before = dict(proxy.accepted)
    proxy.add(Mode.BLACK_HOLE)
    proxy.clear()  # sessions that are open are lost, new ones pass
    lost_at = time.monotonic()
    handlers.record.enqueue(number=1)
    handlers.record.using(delay=0.1).enqueue(number=2)
    found: dict[str, float] = {}

    def all_found() -> bool:
        for name, count in proxy.accepted.items():
            purpose = name.rpartition("-")[2]
            if count > before.get(name, 0) and purpose in AT_WORK:
                found.setdefault(purpose, time.monotonic() - lost_at)
        return len(found) == len(AT_WORK)

    wait_until(all_found, message=lambda: f"{found} {worker.text()}")
    wait_until(lambda: database.effects("record") == [0, 1, 2], message=worker.text)
    took = time.monotonic() - lost_at
    wait_until(lambda: database.states() == {"completed": 4}, message=worker.text)
    assert worker.stop(60) == 0
    assert database.rows("SELECT DISTINCT run_lease FROM awa.jobs") == [(1,)]
    assert took < 30
    assert max(found.values()) < 30
    told = ", ".join(f"{name} after {seconds:.0f} s" for name, seconds in sorted(found.items()))
    observe(
        f"{sessions} sessions lost in silence: {told}; jobs due at once and later ran after {took:.0f} s, "
        "nothing was rescued"
    )


@pytest.mark.fault("F27", injected="the connection is black-holed in the middle of a statement")
def test_session_gives_up_what_nobody_answers(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, observe: Observe
) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 0.5)
    session = Session("test-session", conninfo=proxy.url)
    with session.use() as connection:
        connection.execute("SELECT 1")
    proxy.add(Mode.BLACK_HOLE)
    monkeypatch.setattr(session, "_limit", 0.5)  # for this use alone: the others may be slow
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError), session.use() as connection:
        connection.execute("SELECT 2")
    took = time.monotonic() - began
    proxy.clear()
    monkeypatch.setattr(session, "_limit", 60.0)
    with session.use() as connection:
        assert connection.execute("SELECT 3").fetchone() == (3,)
    session.close()
    assert took < 30
    observe(f"with limits of 0.5 s given up after {took:.1f} s, the next use has a new connection")


@pytest.mark.fault("F27", injected="the connection is black-holed while it is being set up")
@pytest.mark.parametrize("statement", [b"default_transaction_isolation", b""])
def test_session_gives_up_a_connection_that_is_never_ready(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, statement: bytes
) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 0.5)
    monkeypatch.setitem(database_module._DEFAULTS, "connect_timeout", 2)
    proxy.add(Mode.BLACK_HOLE, application="test-session", containing=statement)
    session = Session("test-session", limit=0.5, conninfo=proxy.url)
    failed = threading.Event()

    def use() -> None:
        with contextlib.suppress(psycopg.OperationalError), session.use():
            return
        failed.set()

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    assert failed.wait(60)
    thread.join(60)
