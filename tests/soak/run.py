"""One soak, from an empty cluster to the account.

Three workers run behind proxies of their own, five producers enqueue, a nemesis breaks things by a
seed. Handlers and producers write a ledger into files, triggers write down every transition. Then
the nemesis stops, the workers drain, and all of it has to agree.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.soak import account, fake_clock, history, ledger
from tests.soak.cluster import SoakCluster
from tests.soak.frozen import check_freezes
from tests.soak.nemesis import Freeze, Nemesis
from tests.soak.vitals import Trend, Vitals
from tests.soak.workers import SETTINGS, SoakWorker
from tests.waiting import wait_until

logger = logging.getLogger(__name__)

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
# Producer -> actions a second, on average. One of each kind goes through the proxy of a worker.
PRODUCERS = {"orm": 8.0, "single": 10.0, "bulk": 1.0, "unique": 6.0, "raw": 8.0}
WORKERS = 3
# What is left when the load ends, and what the nemesis broke last, has to be done within this.
DRAIN_WITHIN = 120.0
START_WITHIN = 90.0
# Seconds from which every fault has time to come, more than once.
LONG = 300.0
NOT_DONE = """
    SELECT count(*) FROM awa.jobs
    WHERE state IN ('available', 'running', 'retryable')
       OR (state = 'scheduled' AND run_at < now() + interval '1 hour')
"""


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of it."""

    seed: int
    seconds: float
    faked_clock: bool
    figures: dict[str, float] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    """How often each fault broke something."""
    met: dict[str, int] = field(default_factory=dict)
    """How much it broke: sessions, rows, answers."""
    missed: dict[str, int] = field(default_factory=dict)
    """How often it found nothing to break."""
    trends: list[Trend] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"soak of {self.seconds:.0f} s, seed {self.seed}"]
        lines += [f"  fault  {name}: {count}" for name, count in sorted(self.faults.items())]
        lines += [f"  met  {name}: {count}" for name, count in sorted(self.met.items())]
        lines += [f"  met nothing  {name}: {count}" for name, count in sorted(self.missed.items())]
        lines += [f"  {name}: {value:g}" for name, value in self.figures.items()]
        lines += [
            f"  {each.what}: {each.first:g}, then {each.second:g}, at most {each.highest:g}"
            for each in self.trends
        ]
        lines += [f"  VIOLATION  {each}" for each in self.violations]
        lines.append("violated" if self.violations else "all of it is accounted for")
        return "\n".join(lines)

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)


class Soak:
    """``run`` it once."""

    def __init__(self, *, seconds: float, seed: int, directory: Path | None = None) -> None:
        self._seconds = seconds
        self._directory = directory or Path(tempfile.mkdtemp(prefix="soak-"))
        self._ledger = self._directory / "ledger"
        self._chance = random.Random(seed)
        self._report = Report(seed=seed, seconds=seconds, faked_clock=fake_clock.library() is not None)
        self._account = account.Account()
        self._freezes: list[Freeze] = []

    def run(self) -> Report:
        """All of it, bounded in time. The directory with logs and ledger stays if something is wrong."""
        self._ledger.mkdir(parents=True)  # another soak's would not agree with ours
        logger.info("logs and ledger are in %s", self._directory)
        cluster = SoakCluster()
        try:
            self._run_on(cluster)
        finally:
            cluster.remove()
        self._report.figures = self._account.figures
        self._report.violations = self._account.violations
        if not self._report.violations:
            shutil.rmtree(self._directory, ignore_errors=True)
        return self._report

    def _run_on(self, cluster: SoakCluster) -> None:
        env = {
            **os.environ,
            ledger.VARIABLE: str(self._ledger),
            "DATABASE_URL": cluster.url,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "TEST_AWA": json.dumps(SETTINGS),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
        }
        _manage(env, "migrate", "--verbosity=0")
        with cluster.connect() as connection:
            connection.execute(Path(__file__).with_name("audit.sql").read_text())
        workers = [
            SoakWorker(number, cluster.url, env, self._directory, self._chance.randrange(2**32))
            for number in range(WORKERS)
        ]
        try:
            with cluster.connect() as connection:
                for worker in workers:
                    worker.process.wait_ready(connection)
            self._load(cluster, workers, env)
            self._drain(cluster, workers)
            doctor = _manage(env, "awa_doctor", "--full", "--json", check=False)
            with cluster.connect() as connection:
                self._check_sessions(connection, workers)
            for worker in workers:
                self._account.violations += worker.stop(timeout=30)
            self._check(cluster, doctor)
        finally:
            for worker in workers:
                worker.close()

    def _load(self, cluster: SoakCluster, workers: list[SoakWorker], env: dict[str, str]) -> None:
        vitals = Vitals(cluster, workers[0])
        is_long = self._seconds >= LONG
        nemesis = Nemesis(cluster, workers, self._chance.randrange(2**32), is_long=is_long)
        with self._producers(env, workers):
            vitals.start()
            nemesis.start()
            try:
                self._watch(workers, self._seconds)
            finally:
                nemesis.stop()
                vitals.stop()
        self._freezes = nemesis.freezes
        self._report.faults = dict(nemesis.counts)
        self._report.met = dict(nemesis.met)
        self._report.missed = dict(nemesis.missed)
        self._report.trends = vitals.trends()
        self._account.figures["faults"] = nemesis.counts.total()
        self._account.figures["starts of workers"] = sum(worker.starts for worker in workers)
        self._account.figures["starts of PostgreSQL"] = 1 + cluster.restart_count
        self._account.require("faults that could not be injected", nemesis.errors)
        if is_long:
            self._account.require("faults without any effect", nemesis.without_effect())
        self._account.require("not flat", (each for each in self._report.trends if not each.is_flat))

    def _watch(self, workers: list[SoakWorker], seconds: float) -> None:
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            for worker in workers:
                worker.look()
            time.sleep(0.1)

    @contextlib.contextmanager
    def _producers(self, env: dict[str, str], workers: list[SoakWorker]) -> Iterator[None]:
        """They run during the block; who does not end then is killed, as a web server may be."""
        producers = []
        for place, (name, rate) in enumerate(PRODUCERS.items()):
            own = dict(env)
            if name in ("single", "bulk"):  # these meet the faults of the network
                own["DATABASE_URL"] = f"{workers[place % WORKERS].proxy.url}?connect_timeout=5"
            arguments = [name, str(self._chance.randrange(2**32)), str(rate)]
            with (self._directory / f"producer-{name}.log").open("wb") as log:
                producers.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.soak.producers", *arguments],
                        env=own,
                        cwd=PROJECT_DIR,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        try:
            yield
        finally:
            (self._ledger / "stop").touch()
            codes = [_end(producer) for producer in producers]
        wrong = [name for name, code in zip(PRODUCERS, codes, strict=True) if code]
        self._account.require("producers that broke", wrong)

    def _drain(self, cluster: SoakCluster, workers: list[SoakWorker]) -> None:
        """Until only what is for tomorrow waits; what is not done then is stuck, and found so."""
        started_at = time.monotonic()
        with cluster.connect() as connection:
            connection.execute("UPDATE awa.cron_jobs SET paused = true")

        def is_done() -> bool:
            for worker in workers:
                worker.look()
            with cluster.connect() as connection:
                row = connection.execute(NOT_DONE).fetchone()
            return row == (0,)

        with contextlib.suppress(AssertionError):
            wait_until(is_done, timeout=DRAIN_WITHIN, interval=0.25)
        self._account.figures["seconds to drain"] = round(time.monotonic() - started_at, 1)
        for worker in workers:
            with contextlib.suppress(AssertionError):
                wait_until(lambda worker=worker: len(worker.child_pids()) == 2, timeout=START_WITHIN)  # type: ignore[misc]
        self._account.require(
            "ends of workers that nobody asked for", (each for worker in workers for each in worker.exits)
        )

    def _check_sessions(self, connection: psycopg.Connection[Any], workers: list[SoakWorker]) -> None:
        """No more connections than the documentation says: the dead have left none."""
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
            "AND application_name <> 'soak'"
        ).fetchone()
        assert row is not None
        most = len(workers) * (2 * (8 + 2) + 10)
        self._account.figures["connections at the end"] = row[0]
        self._account.require("too many connections", [row[0]] if row[0] > most else [])

    def _check(self, cluster: SoakCluster, doctor: subprocess.CompletedProcess[str]) -> None:
        with contextlib.suppress(ValueError):
            doctor_said = [each for each in json.loads(doctor.stdout)["findings"] if not each["is_warning"]]
            self._account.require("doctor", doctor_said)
        if doctor.returncode:
            self._account.violations.append(f"awa_doctor ended with {doctor.returncode}: {doctor.stderr}")
        with cluster.connect() as connection:
            histories = history.read(connection, time.time() - time.monotonic())
            runs = ledger.runs(self._ledger)
            account.check(self._account, ledger.enqueues(self._ledger), histories, runs, connection)
            check_freezes(self._account, self._freezes, histories, runs)


def _manage(env: dict[str, str], *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT_DIR / "manage.py"), *arguments],
        env=env,
        cwd=PROJECT_DIR,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def _end(producer: subprocess.Popen[bytes]) -> int:
    """Its exit code; zero when it had to be killed, which producers must survive too."""
    try:
        return producer.wait(15)
    except subprocess.TimeoutExpired:
        producer.kill()
        producer.wait(10)
        return 0
