"""Sessions that the server ends, a leader that is cut off, replicas, and a full queue of notifications."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from tests import handlers
from tests.clusters import PROJECT_DIR, cluster, free_port, server_version
from tests.conftest import Connect
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt, django_at
from tests.proxy import Mode, Proxy
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 30.0, "SWEEP_INTERVAL": 0.5}


@pytest.mark.fault(
    "F20", injected="a random session of the worker is terminated every 50 ms for 6 s under load"
)
def test_terminated_sessions_lose_nothing(
    database: Database, connect: Connect, start_worker: StartWorker, observe: Observe
) -> None:
    worker = start_worker("--processes", "2", awa=QUICK)
    worker.wait_ready(database.connection, children=2)
    killer = connect()
    stopped = threading.Event()
    killed: list[str] = []

    def kill() -> None:
        while not stopped.wait(0.05):
            rows = killer.execute(
                "SELECT pid, application_name FROM pg_stat_activity "
                "WHERE application_name LIKE 'awa-%' AND datname = current_database()"
            ).fetchall()
            if rows:
                pid, name = random.choice(rows)
                killer.execute("SELECT pg_terminate_backend(%s)", [pid])
                killed.append(name.rpartition("-")[2])

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    until = time.monotonic() + 6.0
    count = 0
    while time.monotonic() < until:
        handlers.record.enqueue_many([{"number": count + number} for number in range(10)])
        handlers.record.using(delay=0.05).enqueue(number=count + 10)
        count += 11
        time.sleep(0.1)
    stopped.set()
    thread.join(10)
    wait_until(lambda: database.states() == {"completed": count}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("record") == list(range(count))
    assert database.rows("SELECT max(attempt), max(cardinality(errors)) FROM awa.jobs") == [(1, 0)]
    observe(f"{len(killed)} sessions of {len(set(killed))} kinds ended, {count} jobs ran exactly once each")


@pytest.mark.fault("U10", injected="the session is cut at the completion of one of 100 jobs")
@pytest.mark.fault("U10", injected="heartbeats fail past the cutoff, then the job finishes")
def test_one_of_completed_and_rescued_wins(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, tmp_path: Path, observe: Observe
) -> None:
    cut = proxy.add(Mode.CUT, application="-complete", containing=b"'completed'", times=1)
    awa = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 4.0, "SWEEP_INTERVAL": 0.3}
    worker = start_worker_at(proxy.url, "--concurrency", "4", awa=awa)
    handlers.record.enqueue_many([{"number": number} for number in range(100)])
    wait_until(lambda: database.states() == {"completed": 100}, message=worker.text)
    assert cut.caught == 1
    assert database.effects("record") == list(range(100))
    proxy.add(Mode.CUT, application="-heartbeat")
    go_on = tmp_path / "go on"
    job = handlers.until_first.enqueue(path=str(go_on), number=1)
    wait_until(lambda: database.states() == {"completed": 101}, message=worker.text)
    go_on.touch()  # the first run ends after the second
    wait_until(lambda: database.effects("ended") == [1, 1], message=worker.text)
    wait_until(lambda: "its run was over" in worker.text(), message=worker.text)
    row = database.job(job.id)
    assert (row["state"], row["run_lease"], len(row["errors"])) == ("completed", 2, 1)
    assert worker.stop() == 0
    assert "1 stale" in worker.text()
    observe("sent again under the same lease; rescued under lease 1, completed under lease 2, 1 stale")


@pytest.mark.slow
@pytest.mark.fault("F27", injected="the leader's machine is black-holed, also for new connections")
@pytest.mark.fault("U23", injected="the same: in LISTEN, in a claim, in each statement; then SIGTERM")
def test_black_holed_leader(
    database: Database, proxy: Proxy, start_worker_at: StartWorkerAt, observe: Observe
) -> None:
    port = free_port()
    awa = {"STALE_AFTER": 10.0, "HEARTBEAT_INTERVAL": 1.0, "SWEEP_INTERVAL": 1.0}
    health = {"HEALTH": f"127.0.0.1:{port}"}
    lost = start_worker_at(proxy.url, "--shutdown-timeout", "3", awa={**awa, **health})
    wait_until(lambda: holders(database), message=lost.text)
    (leader,) = holders(database)
    wait_until(lambda: readiness(port) == 200, message=lost.text)
    other = start_worker_at(proxy.upstream_url, awa=awa)
    other.wait_ready(database.connection, children=2)
    proxy.add(Mode.BLACK_HOLE)
    lost_at = time.monotonic()
    for number in range(12):
        handlers.record.using(delay=number + 1.0).enqueue(number=number)
    wait_until(lambda: len(database.effects("record")) == 12, message=other.text)
    lateness = database.value(
        "SELECT max(extract(epoch FROM effects.at - jobs.run_at))::float8 FROM effects "
        "JOIN awa.jobs ON (jobs.args ->> 'number')::int = effects.number"
    )
    (successor,) = holders(database)
    assert successor != leader
    wait_until(lambda: readiness(port) == 503, message=lost.text)
    unready = time.monotonic() - lost_at
    began = time.monotonic()
    lost.signal(15)
    lost.wait(60)
    ended = time.monotonic() - began
    assert other.stop() == 0
    assert lateness < 10
    assert unready < 50
    assert ended < 25  # a service manager grants 30 s
    observe(
        f"a successor promoted at most {lateness:.1f} s late; not ready after {unready:.0f} s; "
        f"SIGTERM (with --shutdown-timeout 3) ended it after {ended:.0f} s"
    )


@pytest.mark.fault("F27", injected="kill -9 of the leader's supervisor")
def test_leader_that_is_gone(database: Database, start_worker: StartWorker, observe: Observe) -> None:
    first = start_worker(awa=QUICK)
    wait_until(lambda: holders(database), message=first.text)
    second = start_worker(awa=QUICK)
    second.wait_ready(database.connection, children=2)
    handlers.record.using(delay=0.3).enqueue(number=1)
    first.signal(9)
    wait_until(lambda: database.effects("record") == [1], message=second.text)
    lateness = database.value(
        "SELECT extract(epoch FROM effects.at - jobs.run_at)::float8 FROM effects, awa.jobs"
    )
    assert second.stop() == 0
    assert lateness < 30
    observe(f"a job that fell due just then was promoted {lateness:.1f} s late")


def holders(database: Database) -> list[str]:
    rows = database.rows(
        "SELECT DISTINCT holder FROM awa.leaders WHERE duty = 'promote' AND expires_at > now()"
    )
    return [holder for (holder,) in rows]


def readiness(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        exc.close()
        return exc.code
    except OSError:
        return 0


READS_ELSEWHERE = """
import django
django.setup()
from django.db import router
from awa_django import operations
from awa_django.models import Job
from tests import handlers
assert router.db_for_read(Job) == EXPECTED, router.db_for_read(Job)
made = handlers.record.enqueue(number=1)
assert handlers.record.get(made.id).state == "available"
assert operations.cancel(made.id).changed == (made.id,)
assert handlers.record.get(made.id).state == "cancelled"
assert operations.retry(made.id).changed == (made.id,)
if EXPECTED == "default":
    assert Job.objects.get(pk=made.id).state == "available"
    assert Job.objects.using("replica").count() == 0
print("consistent")
"""


@pytest.mark.parametrize("own_router", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.fault("F29", injected="a router sends reads to a standby that is behind")
def test_router_that_reads_from_a_replica(
    worker_env: dict[str, str], observe: Observe, own_router: bool
) -> None:
    with cluster() as primary:
        replica = primary.standby()
        try:
            with replica.connect() as there:
                there.execute("SELECT pg_wal_replay_pause()")
                paused = "SELECT true WHERE pg_get_wal_replay_pause_state() = 'paused'"
                wait_until(lambda: there.execute(paused).fetchone())
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"EXPECTED = {'default' if own_router else 'replica'!r}\n{READS_ELSEWHERE}",
                ],
                env={
                    **worker_env,
                    "DATABASE_URL": primary.url,
                    "REPLICA_URL": replica.url,
                    "AWA_ROUTER": "1" if own_router else "",
                    "DJANGO_SETTINGS_MODULE": "tests.replica_settings",
                },
                cwd=PROJECT_DIR,
                capture_output=True,
                text=True,
            )
        finally:
            replica.remove()
    assert done.stdout.strip() == "consistent", done.stderr
    observe(
        "enqueue, look-up, cancel and retry see each other"
        + (", and so do the models with AwaRouter" if own_router else " without AwaRouter too")
    )


@pytest.mark.fault("F36", injected="a listener stuck in a transaction keeps the queue of notifications full")
def test_full_notification_queue(start_worker_at: StartWorkerAt, observe: Observe) -> None:
    if server_version() < 17:
        pytest.skip("the queue of notifications can be made small from PostgreSQL 17 on")
    with cluster(max_notify_queue_pages=64) as server, server.connect() as own, django_at(server.url):
        database = Database(own)
        worker = start_worker_at(server.url)
        handlers.record.enqueue(number=0)
        wait_until(lambda: database.effects("record") == [0], message=worker.text)
        wait_until(lambda: database.value("SELECT count(*) FROM awa.waiters WHERE expires_at > now()"))
        with server.connect() as stuck:
            stuck.execute("LISTEN awa_jobs")
            stuck.execute("BEGIN")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                fill_notification_queue(own)
            for number in range(1, 4):
                time.sleep(0.12)  # what was said of waiters is not believed any more
                handlers.record.enqueue(number=number)
            time.sleep(0.12)
            with pytest.raises(OperationalError, match="NOTIFY queue"), transaction.atomic():
                handlers.record.enqueue(number=4)
            wait_until(lambda: database.effects("record") == [0, 1, 2, 3], message=worker.text)
        assert worker.stop() == 0
        connection.close()
    observe(
        "outside of a transaction the jobs are in, the lost wake-up is logged, and workers poll; "
        "inside of one the commit says that the queue of notifications is full"
    )


def fill_notification_queue(session: psycopg.Connection[Any]) -> None:
    for number in range(200):
        session.execute("SELECT pg_notify('awa_jobs', rpad(%s, 7900, 'x'))", [str(number)])
