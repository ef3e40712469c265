"""The nemesis: two lanes of faults, one for processes and one for the database and the network.

What it does, to whom and for how long is drawn from the seed. Each lane deals its faults as a
shuffled pack, so none is left out, and shuffles again. What met nothing to break is counted apart.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from tests.proxy import Mode
from tests.soak import fake_clock
from tests.soak.cluster import SoakCluster
from tests.soak.workers import SoakWorker
from tests.waiting import wait_until

logger = logging.getLogger(__name__)

# Seconds. Longer than STALE_AFTER, the lease of a duty (6 s) and two sweeps: whoever is frozen so
# long has lost all its leases, even if it was the one to rescue the others.
FROZEN = (9.0, 13.0)
DOWN = (0.5, 6.0)
DOWN_LONG = (20.0, 30.0)
GAP = (0.5, 3.0)
# The first pack with a long stop of PostgreSQL, and every so many packs another one.
LONG_STOP_IN, LONG_STOP_EVERY = 1, 4
# Seconds until a statement of the kind that loses its answer has to come.
STATEMENT_WITHIN = 6.0


@dataclass(frozen=True, slots=True)
class Injected:
    """What a fault met: ``count`` of ``unit``; 0 is a fault that broke nothing."""

    count: int
    unit: str
    detail: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Processes that stood still; instants of the monotonic clock."""

    pids: frozenset[int]
    since: float
    until: float


Fault = Callable[[random.Random], Injected]


class Nemesis:
    """``start`` and ``stop``; then it says what it did, and ``errors`` what it could not do.

    ``is_long`` adds stops of PostgreSQL that a short run has no time for.
    """

    def __init__(
        self, cluster: SoakCluster, workers: Sequence[SoakWorker], seed: int, *, is_long: bool
    ) -> None:
        self._cluster = cluster
        self._workers = workers
        self._mortal = [worker for worker in workers if not worker.is_veteran]
        self.counts: Counter[str] = Counter()
        """How often each fault broke something."""
        self.met: Counter[str] = Counter()
        """How much it broke: sessions, rows, answers."""
        self.missed: Counter[str] = Counter()
        """How often it found nothing to break."""
        self.freezes: list[Freeze] = []
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._process_faults: list[Fault] = [
            self._kill_child,
            self._kill_child,
            self._kill_supervisor,
            self._freeze_child,
            self._freeze_worker,
            self._replace_worker,
        ]
        if any(worker.has_wrong_clock for worker in workers):
            self._process_faults.append(self._jump_clock)
        self._database_faults: list[Fault] = [
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
        rare: list[Fault] = [self._stop_postgres] if is_long else []
        self._threads = [
            threading.Thread(target=self._serve, args=(*lane, seed + place), name=f"nemesis-{place}")
            for place, lane in enumerate(((self._process_faults, []), (self._database_faults, rare)))
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

    def without_effect(self) -> list[str]:
        """Faults that never broke anything."""
        faults = self._process_faults + self._database_faults
        return sorted({_name(fault) for fault in faults} - self.counts.keys())

    def _serve(self, faults: list[Fault], rare: list[Fault], seed: int) -> None:
        chance = random.Random(seed)
        number = 0
        while not self._stopping.is_set():
            pack = list(faults)
            if number % LONG_STOP_EVERY == LONG_STOP_IN:
                pack += rare
            number += 1
            chance.shuffle(pack)
            for fault in pack:
                if self._stopping.wait(chance.uniform(*GAP)):
                    return
                # Its own numbers, so that what one fault draws does not move the next ones.
                self._inject(fault, random.Random(chance.random()))

    def _inject(self, fault: Fault, chance: random.Random) -> None:
        name = _name(fault)
        try:
            injected = fault(chance)
        except Exception as exc:  # noqa: BLE001  (the next fault comes all the same)
            logger.warning("%s was not possible: %s", name, exc)
            self.errors.append(f"{name}: {exc}")
            return
        logger.info("%s: %s %s (%s)", name, injected.count, injected.unit, injected.detail)
        if injected.count:
            self.counts[name] += 1
            self.met[f"{name}: {injected.unit}"] += injected.count
        else:
            self.missed[name] += 1

    # Processes.

    def _kill_child(self, chance: random.Random) -> Injected:
        worker = chance.choice(self._mortal)
        pids = sorted(worker.child_pids())
        killed = sum(_signal(pid, signal.SIGKILL) for pid in chance.sample(pids, min(len(pids), 1)))
        return Injected(killed, "processes", f"worker {worker.number}")

    def _kill_supervisor(self, chance: random.Random) -> Injected:
        worker = chance.choice(self._mortal)
        worker.expects_end = True
        killed = _signal(worker.process.pid, signal.SIGKILL)
        return Injected(killed, "processes", f"worker {worker.number}")

    def _replace_worker(self, chance: random.Random) -> Injected:
        """TERM, as a deploy does; some while jobs of 6 s run and only 8 s are given."""
        worker = chance.choice(self._mortal)
        worker.expects_end = True
        told = _signal(worker.process.pid, signal.SIGTERM)
        self._stopping.wait(9)
        return Injected(told, "processes", f"worker {worker.number}")

    def _freeze_child(self, chance: random.Random) -> Injected:
        worker = chance.choice(self._workers)
        pids = sorted(worker.child_pids())
        return self._freeze(chance, chance.sample(pids, min(len(pids), 1)), worker)

    def _freeze_worker(self, chance: random.Random) -> Injected:
        worker = chance.choice(self._workers)
        return self._freeze(chance, [process.pid for process in worker.processes()], worker)

    def _freeze(self, chance: random.Random, pids: list[int], worker: SoakWorker) -> Injected:
        seconds = chance.uniform(*FROZEN)
        since = time.monotonic()
        try:
            frozen = [pid for pid in pids if _signal(pid, signal.SIGSTOP)]
            self._stopping.wait(seconds)
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)
        self.freezes.append(Freeze(frozenset(frozen), since, time.monotonic()))
        return Injected(len(frozen), "processes", f"worker {worker.number}, {seconds:.1f} s")

    def _jump_clock(self, chance: random.Random) -> Injected:
        worker = next(worker for worker in self._workers if worker.has_wrong_clock)
        skew = chance.choice(fake_clock.SKEWS)
        worker.set_clock(skew)
        return Injected(1, "workers", f"worker {worker.number} to {skew}")

    # The database and the network.

    def _terminate_sessions(self, chance: random.Random) -> Injected:
        with self._cluster.connect() as connection:
            found = connection.execute(
                "SELECT pid, application_name FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND application_name <> 'soak' ORDER BY pid"
            ).fetchall()
            chosen = chance.sample(found, min(len(found), chance.randint(1, 5)))
            for pid, _ in chosen:
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        return Injected(len(chosen), "sessions", ", ".join(name or "(unnamed)" for _, name in chosen))

    def _restart_postgres(self, chance: random.Random) -> Injected:
        return self._crash_postgres(chance.uniform(*DOWN))

    def _stop_postgres(self, chance: random.Random) -> Injected:
        """Longer than any lease lasts: all that runs is rescued when it is there again."""
        return self._crash_postgres(chance.uniform(*DOWN_LONG))

    def _crash_postgres(self, seconds: float) -> Injected:
        since = time.monotonic()
        self._cluster.crash()
        try:
            self._stopping.wait(seconds)
        finally:
            self._cluster.start()
        return Injected(round(time.monotonic() - since), "seconds down", f"{seconds:.1f} s and its start")

    def _black_hole_worker(self, chance: random.Random) -> Injected:
        """Nothing passes for some seconds, then its connections end, as when a firewall comes up again."""
        worker = chance.choice(self._workers)
        seconds = chance.uniform(2, 12)
        worker.proxy.add(Mode.BLACK_HOLE)
        try:
            self._stopping.wait(seconds)
        finally:
            worker.proxy.clear()
            cut = worker.proxy.cut_all()
        return Injected(cut, "connections", f"worker {worker.number}, {seconds:.1f} s")

    def _black_hole_session(self, chance: random.Random) -> Injected:
        """One connection is half open for ever; the worker has to find out by itself."""
        worker = chance.choice(self._workers)
        purpose = chance.choice(
            ["-claim", "-complete", "-heartbeat", "-leader", "-listen", "-promote", "-reconcile", "-upkeep"]
        )
        rule = worker.proxy.add(Mode.BLACK_HOLE, application=purpose)
        self._stopping.wait(0.5)
        worker.proxy.clear()
        return Injected(rule.caught, "connections", f"{purpose[1:]} of worker {worker.number}")

    def _drop_replies(self, chance: random.Random) -> Injected:
        """The server does it, and the answer is lost."""
        worker = chance.choice(self._workers)
        times = chance.randint(1, 6)
        purpose = chance.choice(["", "-claim", "-complete", "-complete", "-promote", "-upkeep", "-heartbeat"])
        rule = worker.proxy.add(Mode.DROP_REPLY, application=purpose, times=times)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: rule.caught or self._stopping.is_set(), timeout=STATEMENT_WITHIN)
        self._stopping.wait(2)
        worker.proxy.clear()
        return Injected(rule.caught, "answers", f"{purpose[1:] or 'all'} of worker {worker.number}")

    def _cut_connections(self, chance: random.Random) -> Injected:
        worker = chance.choice(self._workers)
        return Injected(worker.proxy.cut_all(), "connections", f"worker {worker.number}")

    def _lock_rows(self, chance: random.Random) -> Injected:
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
        return Injected(len(locked), "rows", f"{table}, {seconds:.1f} s")

    def _lock_table(self, chance: random.Random) -> Injected:
        seconds = chance.uniform(0.3, 2)
        table = chance.choice(["jobs_hot", "scheduled_jobs", "job_unique_claims", "leaders"])
        locked = 0
        with self._cluster.connect(autocommit=False) as connection:
            connection.execute("SET LOCAL lock_timeout = '5s'")
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                connection.execute(f"LOCK TABLE awa.{table} IN SHARE ROW EXCLUSIVE MODE")
                locked = 1
                self._stopping.wait(seconds)
            connection.rollback()
        return Injected(locked, "tables", f"{table}, {seconds:.1f} s")


def _name(fault: Fault) -> str:
    return fault.__name__.strip("_").replace("_", " ")


def _signal(pid: int, number: int) -> int:
    """How many processes got it: 1, or 0 if it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return 0
    return 1
