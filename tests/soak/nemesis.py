"""The nemesis: two lanes of faults, one for processes and one for the database and the network.

What it does, to whom and for how long is drawn from the seed. Each lane deals its faults as a
shuffled pack, so none is left out, and shuffles again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import psycopg

from tests.proxy import Mode
from tests.soak.cluster import SoakCluster
from tests.soak.workers import SoakWorker

logger = logging.getLogger(__name__)

Fault = Callable[[random.Random], str]

# Longer than STALE_AFTER and two sweeps: whoever is frozen so long has lost all its leases.
FROZEN = (7.5, 10.0)
GAP = (0.5, 3.0)


class Nemesis:
    """``start`` and ``stop``; ``counts`` says what it did, ``errors`` what it could not do."""

    def __init__(self, cluster: SoakCluster, workers: Sequence[SoakWorker], seed: int) -> None:
        self._cluster = cluster
        self._workers = workers
        self._mortal = [worker for worker in workers if not worker.is_veteran]
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._frozen: set[int] = set()
        process_faults: list[Fault] = [
            self._kill_child,
            self._kill_child,
            self._kill_supervisor,
            self._freeze_child,
            self._freeze_worker,
            self._replace_worker,
        ]
        database_faults: list[Fault] = [
            self._terminate_sessions,
            self._terminate_sessions,
            self._restart_postgres,
            self._black_hole_worker,
            self._black_hole_session,
            self._drop_replies,
            self._drop_replies,
            self._cut_connections,
            self._lock_rows,
            self._lock_table,
        ]
        self._threads = [
            threading.Thread(target=self._serve, args=(faults, seed + place), name=f"nemesis-{place}")
            for place, faults in enumerate((process_faults, database_faults))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End what goes on, and heal everything."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(90)
        for worker in self._workers:
            worker.proxy.clear()
            worker.proxy.cut_all()

    def _serve(self, faults: list[Fault], seed: int) -> None:
        chance = random.Random(seed)
        while not self._stopping.is_set():
            pack = list(faults)
            chance.shuffle(pack)
            for fault in pack:
                if self._stopping.wait(chance.uniform(*GAP)):
                    return
                # Its own numbers, so that what one fault draws does not move the next ones.
                own = random.Random(chance.random())
                name = fault.__name__.strip("_").replace("_", " ")
                try:
                    logger.info("%s: %s", name, fault(own))
                    self.counts[name] += 1
                except Exception as exc:  # noqa: BLE001  (the next fault comes all the same)
                    logger.warning("%s was not possible: %s", name, exc)
                    self.errors.append(f"{name}: {exc}")

    # Processes.

    def _kill_child(self, chance: random.Random) -> str:
        worker = chance.choice(self._mortal)
        pids = worker.child_pids()
        if not pids:
            return f"worker {worker.number} has no child now"
        pid = chance.choice(sorted(pids))
        _signal(pid, signal.SIGKILL)
        return f"{pid} of worker {worker.number}"

    def _kill_supervisor(self, chance: random.Random) -> str:
        worker = chance.choice(self._mortal)
        worker.expects_end = True
        _signal(worker.process.pid, signal.SIGKILL)
        return f"{worker.process.pid} of worker {worker.number}"

    def _replace_worker(self, chance: random.Random) -> str:
        """TERM, as a deploy does; some while jobs of 6 s run and only 8 s are given."""
        worker = chance.choice(self._mortal)
        worker.expects_end = True
        _signal(worker.process.pid, signal.SIGTERM)
        self._stopping.wait(9)
        return f"worker {worker.number}"

    def _freeze_child(self, chance: random.Random) -> str:
        worker = chance.choice(self._workers)
        pids = worker.child_pids()
        return self._freeze(chance, [chance.choice(sorted(pids))] if pids else [], worker)

    def _freeze_worker(self, chance: random.Random) -> str:
        worker = chance.choice(self._workers)
        return self._freeze(chance, [process.pid for process in worker.processes()], worker)

    def _freeze(self, chance: random.Random, pids: list[int], worker: SoakWorker) -> str:
        seconds = chance.uniform(*FROZEN)
        try:
            for pid in pids:
                _signal(pid, signal.SIGSTOP)
            self._stopping.wait(seconds)
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)
        return f"{len(pids)} processes of worker {worker.number} for {seconds:.1f} s"

    # The database and the network.

    def _terminate_sessions(self, chance: random.Random) -> str:
        with self._cluster.connect() as connection:
            found = connection.execute(
                "SELECT pid, application_name FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND application_name <> 'soak' ORDER BY pid"
            ).fetchall()
            chosen = chance.sample(found, min(len(found), chance.randint(1, 5)))
            for pid, _ in chosen:
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        return ", ".join(name or "(unnamed)" for _, name in chosen)

    def _restart_postgres(self, chance: random.Random) -> str:
        seconds = chance.uniform(0.5, 6)
        self._cluster.crash()
        try:
            self._stopping.wait(seconds)
        finally:
            self._cluster.start()
        return f"down for {seconds:.1f} s"

    def _black_hole_worker(self, chance: random.Random) -> str:
        """Nothing passes for some seconds, then its connections end, as when a firewall comes up again."""
        worker = chance.choice(self._workers)
        seconds = chance.uniform(2, 9)
        worker.proxy.add(Mode.BLACK_HOLE)
        try:
            self._stopping.wait(seconds)
        finally:
            worker.proxy.clear()
            worker.proxy.cut_all()
        return f"worker {worker.number} for {seconds:.1f} s"

    def _black_hole_session(self, chance: random.Random) -> str:
        """One connection is half open for ever; the worker has to find out by itself."""
        worker = chance.choice(self._workers)
        purpose = chance.choice(
            ["-claim", "-complete", "-heartbeat", "-leader", "-listen", "-promote", "-reconcile", "-upkeep"]
        )
        worker.proxy.add(Mode.BLACK_HOLE, application=purpose)
        self._stopping.wait(0.5)
        worker.proxy.clear()
        return f"{purpose[1:]} of worker {worker.number}"

    def _drop_replies(self, chance: random.Random) -> str:
        """The server does it, and the answer is lost."""
        worker = chance.choice(self._workers)
        times = chance.randint(1, 6)
        purpose = chance.choice(["", "-claim", "-complete", "-complete", "-promote", "-upkeep", "-heartbeat"])
        rule = worker.proxy.add(Mode.DROP_REPLY, application=purpose, times=times)
        self._stopping.wait(2)
        worker.proxy.clear()
        return f"{rule.caught} of {purpose[1:] or 'all'} of worker {worker.number}"

    def _cut_connections(self, chance: random.Random) -> str:
        worker = chance.choice(self._workers)
        return f"{worker.proxy.cut_all()} of worker {worker.number}"

    def _lock_rows(self, chance: random.Random) -> str:
        seconds = chance.uniform(1, 6)
        table, states = chance.choice(
            [("jobs_hot", "'running', 'available'"), ("scheduled_jobs", "'retryable', 'scheduled'")]
        )
        with self._cluster.connect(autocommit=False) as connection:
            locked = connection.execute(
                f"SELECT id FROM awa.{table} WHERE state IN ({states}) ORDER BY id LIMIT 10 "
                "FOR UPDATE SKIP LOCKED"
            ).fetchall()
            self._stopping.wait(seconds)
            connection.rollback()
        return f"{len(locked)} of {table} for {seconds:.1f} s"

    def _lock_table(self, chance: random.Random) -> str:
        seconds = chance.uniform(0.3, 2)
        table = chance.choice(["jobs_hot", "scheduled_jobs", "job_unique_claims", "leaders"])
        with self._cluster.connect(autocommit=False) as connection:
            connection.execute("SET LOCAL lock_timeout = '5s'")
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                connection.execute(f"LOCK TABLE awa.{table} IN SHARE ROW EXCLUSIVE MODE")
                self._stopping.wait(seconds)
            connection.rollback()
        return f"{table} for {seconds:.1f} s"


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
