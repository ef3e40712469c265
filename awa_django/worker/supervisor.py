"""Supervisor: wires the services round the children, and decides when all of it stops.

It runs no handler, so nothing that a handler does can stop it.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection as mp_connection

import psycopg

from awa_django import failpoints, registry
from awa_django.conf import get_settings
from awa_django.errors import AwaError
from awa_django.logs import get_logger
from awa_django.storage import inspect
from awa_django.storage.catalogue import catalogue_kinds
from awa_django.worker import middleware
from awa_django.worker.canceller import Canceller
from awa_django.worker.children import Children
from awa_django.worker.cron_scheduler import CronScheduler, declare_schedule
from awa_django.worker.database import (
    BATCH_PATIENCE,
    STATEMENT_LIMIT,
    PsycopgConnection,
    Session,
    check_rights,
    check_schema,
)
from awa_django.worker.django_connections import disconnect
from awa_django.worker.forks import stop_signals
from awa_django.worker.health import Health, HealthServer, examine
from awa_django.worker.heartbeater import Heartbeater
from awa_django.worker.leader import Leader
from awa_django.worker.listener import Listener
from awa_django.worker.measure import measure
from awa_django.worker.options import WorkerOptions
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.reconciler import Reconciler
from awa_django.worker.rescuer import Rescuer
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter
from awa_django.worker.stats import Stats
from awa_django.worker.vacuumer import LONGEST_VACUUM, Vacuumer

logger = get_logger(__name__)

# Exit codes of a worker.
EXIT_OK = 0
EXIT_CANNOT_START = 1
# The stop ran out of time or was forced: what still ran was given back to the queue.
EXIT_JOBS_GIVEN_BACK = 3

# How often limits and ends are looked at when no child says anything.
LOOK_EVERY = 0.1
# The database must answer within this at the start; later its absence is ridden out.
START_PATIENCE = 30.0
# The rows of the last children must be settled within this at the end.
FAREWELL_PATIENCE = 10.0
# But there is always this much for the last statements.
LEAST_PATIENCE = 2.0


class Supervisor:
    """One worker: ``run`` returns its exit code."""

    def __init__(self, options: WorkerOptions) -> None:
        failpoints.load()
        token = secrets.token_hex(4)
        self.name = f"{socket.gethostname()[:40]}:{os.getpid()}:{token}"
        self.options = options
        self.children = Children(options, worker=self.name, application_name=f"awa-{token}")
        self._application_name = f"awa-{token}"
        self._started_at = time.monotonic()
        self._signals = 0
        self._poke, self._poked = socket.socketpair()
        self._stop_reason: str | None = None
        self._kill_at = float("inf")
        self._killed = False
        for end in (self._poke, self._poked):
            end.setblocking(False)
        self._make_services()
        address = get_settings().health
        self._health_server = None if address is None else HealthServer(address, self.health, self.metrics)

    def run(self) -> int:
        """Run until stopped, drained, or out of bounds; the exit code."""
        with self._signal_handlers():
            try:
                self._prepare()
            except psycopg.OperationalError as exc:
                logger.error("the database does not answer: %s", exc)
                return EXIT_CANNOT_START
            except psycopg.errors.InsufficientPrivilege as exc:
                logger.error("this database role may not do what a worker does (docs/roles.md): %s", exc)
                return EXIT_CANNOT_START
            logger.info("worker %s serves %s", self.name, ", ".join(sorted(self.options.queues)))
            for service in self._services:
                service.start()
            if self._health_server is not None:
                self._health_server.start()
            middleware.supervise(lambda: self.leader.holds("stats"))
            try:
                self._start_children()
                while not self._look():
                    pass
            finally:
                self._farewell()
        if self.children.refusal is not None or (self.children.none_began and not self._signals):
            return EXIT_CANNOT_START
        return EXIT_JOBS_GIVEN_BACK if self._killed else EXIT_OK

    def health(self) -> Health:
        """What the loops of this worker show now; from any thread."""
        return examine(
            worker=self.name,
            started_at=self._started_at,
            draining=self._stop_reason is not None,
            services=self._services,
            children=self.children.living(),
        )

    def metrics(self) -> str:
        """What this worker counts, as Prometheus reads it; from any thread."""
        return measure(self.health(), self._count, self.children.held_count)

    def stop(self, reason: str) -> None:
        """Begin to stop, as the first signal does; from any thread."""
        self._stop_reason = self._stop_reason or reason
        self._wake_up()

    def _make_services(self) -> None:
        settings = get_settings()
        living = self.children.living
        reconcile = self._session("reconcile")
        self._question = self._session("question")
        self.leader = Leader(self._session("leader"), self.name)
        self.reconciler = Reconciler(
            reconcile, living, worker=self.name, pid=os.getpid(), options=self.options
        )
        self.listener = Listener(
            self._session("listen", conninfo=settings.listen_url),
            self._session("waiting"),
            living,
            worker=self.name,
            queues=sorted(self.options.queues),
        )
        heartbeater = Heartbeater(
            self._session("heartbeat", patience=BATCH_PATIENCE),
            living,
            heartbeat_interval=settings.heartbeat_interval,
            stale_after=settings.stale_after,
        )
        self._services: list[Service] = [
            self.leader,
            self.reconciler,
            Canceller(reconcile, living),
            self.listener,
            heartbeater,
            *self._make_duties(),
        ]

    def _make_duties(self) -> list[Service]:
        """What is done by whoever holds the lease of it."""
        settings = get_settings()
        upkeep, seldom = self._session("upkeep"), self._session("seldom")
        promoter = Promoter(
            self._session("promote"),
            self.leader,
            interval=settings.promote_interval,
            worker=self.name,
            on_promoted=self.listener.wake_children,
            always=self.options.drain,
            may_rest=lambda: self.listener.hears,
        )
        rescuer = Rescuer(
            upkeep,
            self.leader,
            interval=settings.sweep_interval,
            stale_after=settings.stale_after,
            worker=self.name,
        )
        return [
            promoter,
            rescuer,
            CronScheduler(upkeep, self.leader),
            Pruner(seldom, self.leader, interval=settings.sweep_interval, retention=settings.retention),
            Stats(seldom, self.leader),
            Vacuumer(self._session("vacuum", limit=LONGEST_VACUUM), self.leader),
        ]

    def _session(
        self,
        purpose: str,
        *,
        limit: float = STATEMENT_LIMIT,
        patience: float | None = None,
        conninfo: str | None = None,
    ) -> Session:
        name = f"{self._application_name}-{purpose}"
        return Session(name, limit=limit, patience=patience, conninfo=conninfo)

    def _prepare(self) -> None:
        """Look at the schema and write down what the code declares, before anything runs."""
        give_up_at = time.monotonic() + START_PATIENCE
        session = self._session("start")
        said = ""
        while True:
            try:
                with session.use() as connection:
                    check_schema(connection)
                    check_rights(connection)
                    _declare(connection)
                break
            except psycopg.OperationalError as exc:
                if time.monotonic() > give_up_at or self._signals:
                    raise
                if str(exc) != said:
                    said = str(exc)
                    logger.warning("the database does not answer yet, trying again and again: %s", exc)
                mp_connection.wait([self._poked], timeout=random.uniform(0.5, 1.5))
            finally:
                session.close()
        disconnect()  # nothing that an app's ready() opened is needed here any more

    def _start_children(self) -> None:
        try:
            self.children.start()
        except (EOFError, OSError) as exc:
            # A signal to the whole process group ends the forkserver too, and may reach it first.
            mp_connection.wait([self._poked], timeout=1.0)
            if not self._signals:
                raise AwaError(
                    f"the machine gave no worker process ({exc!r}): look at its limits of processes, memory "
                    "and open files, and whether temporary files can be written (TMPDIR)"
                ) from exc

    def _look(self) -> bool:
        """Wait for something to happen and see to it; whether all is over."""
        mp_connection.wait([self._poked, *self.children.waitables()], timeout=LOOK_EVERY)
        with contextlib.suppress(BlockingIOError):
            self._poked.recv(1024)
        self.children.bury_the_dead(
            self.reconciler, stopping=self._stop_reason is not None, killed=self._killed
        )
        if self._stop_reason is None:
            self.children.retire_overdue()
            self.children.stop_large()
            self.children.respawn()
            self._stop_reason = self._reason_to_stop()
        return self._stop_reason is not None and self._stop_step()

    def _reason_to_stop(self) -> str | None:
        """A signal, a failure to start, or a bound given on the command line."""
        max_time = self.options.max_time
        if self._signals:
            return "signalled"
        if self.children.refusal is not None:
            return "a worker process cannot start"
        if max_time is not None and time.monotonic() - self._started_at >= max_time.total_seconds():
            return "--max-time is over"
        if self.options.max_jobs is not None and self.children.is_budget_spent():
            return "--max-jobs are done"
        if self.options.drain and self._is_drained():
            return "drained"
        return None

    def _is_drained(self) -> bool:
        """Nothing in hand, the last claims found nothing, and the database agrees."""
        if not (self.children.are_idle() and self.reconciler.is_settled):
            return False
        claimed = self.children.count(Counter.CLAIMED)
        try:
            with self._question.use() as connection:
                due = inspect.anything_due(connection, sorted(self.options.queues), registry.kinds())
        except psycopg.Error as exc:
            logger.warning("cannot see whether anything is due: %s", exc)
            return False
        if due:
            self.listener.wake_children()
        return not due and claimed == self.children.count(Counter.CLAIMED)

    def _stop_step(self) -> bool:
        """One look while stopping; whether no child is left."""
        if self._kill_at == float("inf"):
            # Before the word of it is out: whoever reads it and signals again has signalled twice.
            self._forced_at_signal = max(self._signals, 1) + 1
            logger.info("stopping: %s", self._stop_reason)
            self._kill_at = time.monotonic() + self.options.shutdown_timeout.total_seconds()
            self.reconciler.draining = True
            self.children.stop()
        forced = self._signals >= self._forced_at_signal
        if (forced or time.monotonic() >= self._kill_at) and self.children.living() and not self._killed:
            logger.warning(
                "%s: %s jobs are given back",
                "forced to stop" if forced else "--shutdown-timeout is over",
                self.children.held_count,
            )
            self._killed = True
            self.children.kill()
        return not self.children.living()

    def _farewell(self) -> None:
        """After the last child: settle its rows, give up the duties, leave no row behind."""
        give_up_at = time.monotonic() + FAREWELL_PATIENCE
        if self.children.living():  # only after an error of our own
            self.children.kill()
            self.children.bury_the_dead(self.reconciler, stopping=True, killed=True)
        while not self.reconciler.is_settled and time.monotonic() < give_up_at:
            time.sleep(0.02)
        for service in self._services:
            service.stop(timeout=0.0)
        for service in self._services:
            service.stop(timeout=max(give_up_at - time.monotonic(), 0.1))
        # On a thread: what a database that is gone is owed must not keep the process.
        goodbye = threading.Thread(target=self._say_goodbye, name="awa-goodbye", daemon=True)
        goodbye.start()
        goodbye.join(max(give_up_at - time.monotonic(), LEAST_PATIENCE))
        if goodbye.is_alive():
            logger.warning("the database does not answer at the end: what is left there will expire")
        if self._health_server is not None:
            self._health_server.stop()
        self._question.close()
        self._poke.close()
        self._poked.close()
        counts = {counter: self._count(counter) for counter in Counter if counter < Counter.HELD}
        told = ", ".join(f"{count} {each.name.lower().replace('_', ' ')}" for each, count in counts.items())
        logger.info("worker %s ended: %s", self.name, told)

    def _count(self, counter: Counter) -> int:
        """A counter over all children there ever were, with what the services count beside them."""
        beside = sum(service.superseded_count for service in self._services)
        return self.children.count(counter) + (beside if counter == Counter.SUPERSEDED else 0)

    def _say_goodbye(self) -> None:
        for step in (self.leader.resign, self.reconciler.withdraw):
            try:
                step()
            except psycopg.Error as exc:
                logger.warning("the database does not answer at the end: %s", exc)
        self.reconciler.close()  # what it has withdrawn by

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Count the signals to stop while running; only the main thread may set handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):
            self._poke.send(b"!")


def _declare(connection: PsycopgConnection) -> None:
    """Write the kinds and schedules that the code declares."""
    catalogue_kinds(connection, {handler.kind: handler.queue for handler in registry.handlers()})
    for periodic in registry.periodic_jobs():
        declare_schedule(connection, periodic)
