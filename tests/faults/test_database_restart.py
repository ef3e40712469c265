"""A PostgreSQL that crashes, stays away, and fills its disk under a worker that is not restarted."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.clusters import Cluster, cluster, own
from tests.fault_report import Observe
from tests.faults.conftest import StartWorkerAt, VisitDoctor
from tests.proxy import Proxy
from tests.waiting import wait_until
from tests.worker_fixtures import Database
from tests.worker_process import WorkerProcess

AWA = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 5.0, "SWEEP_INTERVAL": 0.5}


class Inserter:
    """Commits jobs one by one by raw SQL until it is stopped; it knows which were acknowledged."""

    def __init__(self, server: Cluster) -> None:
        self._server = server
        self.acknowledged: list[int] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _serve(self) -> None:
        number = 0
        while not self._stopped.is_set():
            try:
                with self._server.connect(connect_timeout=3) as connection:
                    while not self._stopped.is_set():
                        number += 1
                        insert(connection, "record", number=number)
                        self.acknowledged.append(number)
                        time.sleep(0.002)
            except psycopg.Error:
                time.sleep(0.05)


def insert(connection: psycopg.Connection[Any], kind: str, **args: object) -> int:
    """A job by raw SQL; its id."""
    row = connection.execute(
        "INSERT INTO awa.jobs (kind, args) VALUES (%s, %s) RETURNING id",
        [f"tests.handlers.{kind}", Jsonb(args)],
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("synchronous", ["on", pytest.param("off", marks=pytest.mark.slow)])
@pytest.mark.fault("F24", injected="PostgreSQL with fsync on crashes under load, and starts again")
@pytest.mark.fault("F25", injected="the same with synchronous_commit off")
def test_crash_under_load(
    start_worker_at: StartWorkerAt, observe: Observe, visit_doctor: VisitDoctor, synchronous: str
) -> None:
    with cluster(fsync="on", synchronous_commit=synchronous) as server:
        worker = start_worker_at(server.url, awa=AWA)
        with server.connect() as connection:
            worker.wait_ready(connection)
        with Inserter(server) as inserter:
            crashes = 1 if synchronous == "on" else 2
            times = [crash_and_recover(server, inserter, worker) for _ in range(crashes)]
        with server.connect() as connection:
            database = Database(connection)
            wait_until(lambda: set(database.states()) == {"completed"}, message=worker.text)
            assert worker.stop() == 0
            rows = {number for (number,) in database.rows("SELECT (args ->> 'number')::int FROM awa.jobs")}
            lost = set(inserter.acknowledged) - rows
            assert rows <= set(database.effects("record")) or synchronous == "off"
            assert database.value("SELECT max(cardinality(errors)) FROM awa.jobs") <= 2
        if synchronous == "on":
            assert lost == set()
        assert max(times) < 20
        visit_doctor(server.url)
    observe(
        f"synchronous_commit {synchronous}: {len(inserter.acknowledged)} enqueues acknowledged, {len(lost)} "
        f"lost; jobs ran {' and '.join(f'{each:.1f}' for each in times)} s after it accepted connections"
    )


def crash_and_recover(server: Cluster, inserter: Inserter, worker: WorkerProcess) -> float:
    """How long after the restart jobs ran again, in seconds."""
    before = len(inserter.acknowledged)
    wait_until(lambda: len(inserter.acknowledged) > before + 200)
    server.crash()
    server.start()
    accepted_at = time.monotonic()
    with server.connect() as connection:
        database = Database(connection)
        seen = max(database.effects("record"), default=0)
        wait_until(lambda: max(database.effects("record"), default=0) > seen, message=worker.text)
    return time.monotonic() - accepted_at


@pytest.mark.parametrize("is_longer", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.fault(
    "F26", injected="PostgreSQL is away for less or more than a lease; 4 handlers end meanwhile"
)
def test_outage(
    own_cluster: Cluster,
    start_worker_at: StartWorkerAt,
    visit_doctor: VisitDoctor,
    tmp_path: Path,
    observe: Observe,
    is_longer: bool,
) -> None:
    go_on = tmp_path / "go on"
    away = 6.0 if is_longer else 3.0
    awa = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 3.0 if is_longer else 30.0, "SWEEP_INTERVAL": 0.5}
    worker = start_worker_at(own_cluster.url, awa=awa)
    with own_cluster.connect() as connection:
        worker.wait_ready(connection)
        for number in range(4):
            insert(connection, "nothing_until", path=str(go_on), number=number)
        wait_until(lambda: Database(connection).states() == {"running": 4}, message=worker.text)
    before = len(worker.text().splitlines())
    own_cluster.stop(signal.SIGINT)
    go_on.touch()
    time.sleep(away)  # how long it is away is what is tested
    lines = worker.text().splitlines()[before:]
    assert worker.process.poll() is None
    own_cluster.start()
    accepted_at = time.monotonic()
    with own_cluster.connect() as connection:
        database = Database(connection)
        insert(connection, "record", number=1)
        wait_until(lambda: database.effects("record") == [1], message=worker.text)
        took = time.monotonic() - accepted_at
        wait_until(lambda: set(database.states()) == {"completed"}, message=worker.text)
        again = database.value("SELECT count(*) FROM awa.jobs WHERE run_lease = 2")
        assert database.value("SELECT max(run_lease) FROM awa.jobs") <= 2
    assert worker.stop() == 0
    assert took < 20
    # Each loop says once that it fails.
    records = [line for line in lines if " WARNING " in line or " ERROR " in line]
    assert len(records) < 25
    # Whether a result of meanwhile still counts is a race between its worker and the leader.
    assert f"{again} stale" in worker.text()
    assert is_longer or again == 0
    visit_doctor(own_cluster.url)
    observe(
        f"away for {away:g} s with a lease of {awa['STALE_AFTER']:g} s: {len(records)} log records, jobs ran "
        f"{took:.1f} s after it accepted connections; of the 4 results of meanwhile {4 - again} were written "
        f"then, {again} dropped as stale and their jobs run again"
    )


@pytest.mark.slow
@pytest.mark.fault(
    "F26",
    injected="PostgreSQL is stopped, and back for another worker first: 4 runs end, and are run again there",
)
def test_results_of_a_lost_lease_are_dropped(
    own_cluster: Cluster,
    start_worker_at: StartWorkerAt,
    visit_doctor: VisitDoctor,
    tmp_path: Path,
    observe: Observe,
) -> None:
    awa = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 4.0, "SWEEP_INTERVAL": 0.3}
    go_on = tmp_path / "go on"
    with Proxy(own_cluster.url) as proxy:
        first = start_worker_at(proxy.url, awa=awa)
        with own_cluster.connect() as connection:
            first.wait_ready(connection)
            for number in range(4):
                insert(connection, "nothing_until", path=str(go_on), number=number)
            wait_until(lambda: Database(connection).states() == {"running": 4}, message=first.text)
        proxy.refuse()
        own_cluster.stop(signal.SIGINT)
        go_on.touch()
        wait_until(lambda: "jobs failed, trying again" in first.text(), message=first.text)
        own_cluster.start()
        second = start_worker_at(own_cluster.url, awa=awa)
        with own_cluster.connect() as connection:
            database = Database(connection)
            again = [("completed", 2, 2, "rescued")]
            rows = "SELECT DISTINCT state::text, run_lease, attempt, errors[1] ->> 'outcome' FROM awa.jobs"
            wait_until(lambda: database.rows(rows) == again, message=second.text)
            assert second.stop() == 0
            kept = database.rows("SELECT * FROM awa.jobs ORDER BY id")
            assert "its run was over" not in first.text()
            proxy.accept()
            wait_until(lambda: first.text().count("its run was over") == 4, message=first.text)
            assert database.rows("SELECT * FROM awa.jobs ORDER BY id") == kept
            insert(connection, "record", number=1)
            wait_until(lambda: database.effects("record") == [1], message=first.text)
        assert first.stop() == 0
    assert "4 stale" in first.text()
    visit_doctor(own_cluster.url)
    observe(
        "the 4 results were sent until the first worker reached it again, then dropped as stale, logged and "
        "counted; the rows kept the second run's end; the first worker went on"
    )


@pytest.mark.slow
@pytest.mark.fault("F38", injected="the disk of the data fills up under load, and gets room again")
def test_disk_full(
    start_worker_at: StartWorkerAt, visit_doctor: VisitDoctor, small_disk: Path, observe: Observe
) -> None:
    ballast = small_disk / "ballast"
    # Small segments, so that the write-ahead log has to grow as soon as there is something to write.
    with cluster(small_disk, fsync="on", max_wal_size="32MB", min_wal_size="32MB") as server:
        worker = start_worker_at(server.url, awa=AWA)
        with server.connect() as connection:
            worker.wait_ready(connection)
        with Inserter(server) as inserter:
            wait_until(lambda: len(inserter.acknowledged) > 100)
            fill(ballast)
            wait_until(lambda: "No space left on device" in server.log_text())
            time.sleep(2.0)  # everybody meets it
            full_at = len(inserter.acknowledged)
            ballast.unlink()
            if not server.is_running():
                server.stop()
                server.start()
            wait_until(lambda: len(inserter.acknowledged) > full_at + 50, message=server.log_text)
        with server.connect() as connection:
            database = Database(connection)
            wait_until(lambda: set(database.states()) == {"completed"}, message=worker.text)
            rows = {number for (number,) in database.rows("SELECT (args ->> 'number')::int FROM awa.jobs")}
            # A job that met the full disk itself failed by that; an end that met it was sent again.
            assert (
                database.value(
                    "SELECT count(*) FROM awa.jobs WHERE errors::text LIKE '%%could not be stored as%%'"
                )
                == 0
            )
        assert worker.stop() == 0
        assert set(inserter.acknowledged) <= rows
        visit_doctor(server.url)
    observe(
        f"{len(inserter.acknowledged)} enqueues acknowledged, none lost; "
        "the worker went on when there was room, and no end was written as something else"
    )


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 256 MB for a server's data."""
    directory = Path(tempfile.mkdtemp(prefix="small-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", directory], capture_output=True, text=True
    )
    if mounted.returncode:
        directory.rmdir()
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        own(directory)
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)
        directory.rmdir()


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65_536))
