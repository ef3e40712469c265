"""Supervisor: starts, watches, replaces and drains children, and wires the services round them.

It runs no handler, so nothing that a handler does can stop it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection as mp_connection
from multiprocessing.context import BaseContext

import psycopg
from django.db import connections

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.storage import inspect
from awa_django.storage.catalogue import catalogue_kinds
from awa_django.storage.cron_jobs import sync_cron_job
from awa_django.worker.children import ChildProcess
from awa_django.worker.cron_scheduler import CronScheduler
from awa_django.worker.database import Session, check_schema
from awa_django.worker.heartbeater import Heartbeater
from awa_django.worker.leader import Leader
from awa_django.worker.listener import Listener
from awa_django.worker.options import WorkerOptions
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.reconciler import Reconciler
from awa_django.worker.rescuer import Rescuer
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter
from awa_django.worker.stats import Stats
from awa_django.worker.vacuumer import Vacuumer

logger = logging.getLogger(__name__)

# Exit codes of a worker.
EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_JOBS_GIVEN_BACK = 3
"""The stop ran out of time (or was forced): what still ran was given back to the queue."""

# How often limits and ends are looked at when no child says anything.
LOOK_EVERY = 0.1
# A child that lives shorter than this died at once: its successors wait longer and longer.
SHORT_LIFE = 5.0
LONGEST_RESPAWN_WAIT = 30.0
# The database must answer within this at the start; later its absence is ridden out.
START_PATIENCE = 30.0
# The rows of the last children must be settled within this at the end.
FAREWELL_PATIENCE = 10.0


class Supervisor:
    """One worker: ``run`` returns its exit code."""

    def __init__(self, options: WorkerOptions) -> None:
        token = secrets.token_hex(4)
        self.options = options
        self.name = f"{socket.gethostname()[:40]}:{os.getpid()}:{token}"
        self.application_name = f"awa-{token}"
        self._context = _forkserver()
        self._children: list[ChildProcess] = []
        self._children_lock = threading.Lock()
        self._child_number = 0
        self._respawn_at: list[float] = []
        self._short_lives = 0
        self._signals = 0
        self._signals_at_stop = 0
        self._signal_pipe = socket.socketpair()
        for end in self._signal_pipe:
            end.setblocking(False)
        self._stop_reason: str | None = None
        self._kill_at: float | None = None
        self._exit_code = EXIT_OK
        self._done_before: dict[Counter, int] = {}
        self._budget_left = options.max_jobs
        self._started_at = time.monotonic()
        self._make_services()

    def run(self) -> int:
        """Run until stopped, drained, or out of bounds; the exit code."""
        with self._signal_handlers():
            try:
                self._prepare()
            except psycopg.OperationalError as exc:
                logger.error("the database does not answer: %s", exc)
                return EXIT_CANNOT_START
            logger.info("worker %s serves %s", self.name, ", ".join(sorted(self.options.queues)))
            for service in self._services:
                service.start()
            for share in self._shares(self.options.processes):
                self._start_child(share)
            try:
                while not self._look():
                    pass
            finally:
                self._farewell()
        return self._exit_code

    def stop(self, reason: str) -> None:
        """Begin to stop, as the first signal does; from any thread."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self._poke()

    def children(self) -> list[ChildProcess]:
        """The living children."""
        with self._children_lock:
            return list(self._children)

    def count(self, counter: Counter) -> int:
        """A counter over all children, the dead ones included."""
        return self._done_before.get(counter, 0) + sum(child[counter] for child in self.children())

    def _make_services(self) -> None:
        settings = get_settings()
        name = self.application_name
        self._question = Session(f"{name}-question")
        upkeep, seldom = Session(f"{name}-upkeep"), Session(f"{name}-seldom")
        listen_at = {} if settings.listen_url is None else {"conninfo": settings.listen_url}
        self.leader = Leader(Session(f"{name}-leader"), self.name)
        self.reconciler = Reconciler(
            Session(f"{name}-reconcile"), self.children, worker=self.name, pid=os.getpid(), options=self.options
        )
        self.listener = Listener(
            Session(f"{name}-listen", **listen_at),
            Session(f"{name}-waiting"),
            self.children,
            worker=self.name,
            queues=sorted(self.options.queues),
        )
        self.heartbeater = Heartbeater(
            Session(f"{name}-heartbeat"),
            self.children,
            heartbeat_interval=settings.heartbeat_interval,
            stale_after=settings.stale_after,
        )
        self._services: list[Service] = [
            self.leader,
            self.reconciler,
            self.listener,
            self.heartbeater,
            Promoter(
                Session(f"{name}-promote"),
                self.leader,
                interval=settings.promote_interval,
                worker=self.name,
                on_promoted=self.listener.wake_children,
                always=self.options.drain,
            ),
            Rescuer(
                upkeep,
                self.leader,
                interval=settings.sweep_interval,
                stale_after=settings.stale_after,
                worker=self.name,
            ),
            CronScheduler(upkeep, self.leader),
            Pruner(seldom, self.leader, interval=settings.sweep_interval, retention=settings.retention),
            Stats(seldom, self.leader),
            Vacuumer(seldom, self.leader),
        ]

    def _prepare(self) -> None:
        """Look at the schema and write down what the code declares, before anything runs."""
        deadline = time.monotonic() + START_PATIENCE
        session = Session(f"{self.application_name}-start")
        while True:
            try:
                with session.use() as connection:
                    check_schema(connection)
                    catalogue_kinds(connection, {handler.kind: handler.queue for handler in registry.handlers()})
                    for periodic in registry.periodic_jobs():
                        sync_cron_job(
                            connection,
                            name=periodic.name,
                            cron_expr=periodic.cron_expr,
                            timezone=periodic.timezone,
                            kind=periodic.kind,
                            queue=periodic.queue,
                            args=periodic.encode(),
                            priority=periodic.priority,
                            max_attempts=periodic.max_attempts,
                            tags=periodic.tags,
                            metadata=json.dumps(dict(periodic.metadata)),
                        )
                break
            except psycopg.OperationalError as exc:
                if time.monotonic() > deadline or self._signals:
                    raise
                logger.warning("the database does not answer yet: %s", exc)
                time.sleep(1.0)
            finally:
                session.close()
        connections.close_all()

    def _shares(self, count: int) -> list[int | None]:
        """How many jobs each child may claim: its part of ``--max-jobs``, at most ``--max-jobs-per-child``."""
        most = self.options.max_jobs_per_child
        if self._budget_left is None:
            return [most] * count
        each, more = divmod(self._budget_left, count)
        shares = [each + (number < more) for number in range(count)]
        return [share if most is None else min(share, most) for share in shares if share]

    def _start_child(self, budget: int | None) -> None:
        self._child_number += 1
        if self._budget_left is not None and budget is not None:
            self._budget_left -= budget
        child = ChildProcess(
            self._context,
            f"{self.name}/{self._child_number}",
            f"{self.application_name}/{self._child_number}",
            self.options,
            budget,
        )
        with self._children_lock:
            self._children.append(child)

    def _look(self) -> bool:
        """Wait for something to happen and see to it; whether all is over."""
        children = self.children()
        readers = [self._signal_pipe[0], *(each for child in children for each in child.waitables())]
        mp_connection.wait(readers, timeout=LOOK_EVERY)  # type: ignore[arg-type]
        with contextlib.suppress(BlockingIOError):
            self._signal_pipe[0].recv(1024)
        for child in children:
            child.hear()
            if not child.is_alive():
                self._bury(child)
        if self._stop_reason is None:
            self._respawn()
            self._stop_reason = self._reason_to_stop()
        return self._stop_step() if self._stop_reason is not None else False

    def _bury(self, child: ChildProcess) -> None:
        child.hear()
        with self._children_lock:
            self._children.remove(child)
        for counter in Counter:
            if counter < Counter.HELD:
                self._done_before[counter] = self._done_before.get(counter, 0) + child[counter]
        how = child.how_it_died()
        clean = child.stopping and how == "exit code 0"
        if clean and not child.slots():
            self.reconciler.bury(child, f"process ended ({how})")
        else:
            killed_by_us = self._kill_at is not None and child.stopping and self._exit_code == EXIT_JOBS_GIVEN_BACK
            (logger.warning if killed_by_us else logger.error)("worker process %s died (%s)", child.pid, how)
            self.reconciler.bury(child, f"process died ({how})", charge=not killed_by_us)
        child.close()
        if child.refusal is not None:
            logger.error("a worker process refused to start: %s", child.refusal)
            self._exit_code = EXIT_CANNOT_START
            self.stop("a worker process cannot start")
        elif self._stop_reason is None:
            self._plan_respawn(child, clean=clean)

    def _plan_respawn(self, child: ChildProcess, *, clean: bool) -> None:
        """A successor at once, or after a growing wait when children die young."""
        now = time.monotonic()
        short = not clean and now - child.started_at < SHORT_LIFE
        self._short_lives = self._short_lives + 1 if short else 0
        wait = min(0.1 * 2 ** min(self._short_lives - 1, 16), LONGEST_RESPAWN_WAIT) if short else 0.0
        self._respawn_at.append(now + wait)

    def _respawn(self) -> None:
        now = time.monotonic()
        due = [at for at in self._respawn_at if at <= now]
        for at in due:
            self._respawn_at.remove(at)
            for share in self._shares(1):
                self._start_child(share)
        if self.options.max_jobs_per_child is not None:
            for child in self.children():
                if child[Counter.BUDGET_SPENT] and not child[Counter.HELD] and not child.stopping:
                    child.stop()

    def _reason_to_stop(self) -> str | None:
        """Signals, and the bounds given on the command line."""
        if self._signals:
            return "signalled"
        if self.options.max_time is not None:
            if time.monotonic() - self._started_at >= self.options.max_time.total_seconds():
                return "--max-time is over"
        if self.options.max_jobs is not None and self._is_budget_spent():
            return "--max-jobs are done"
        if self.options.drain and self._is_drained():
            return "drained"
        return None

    def _is_budget_spent(self) -> bool:
        children = self.children()
        return self._budget_left == 0 and not self._respawn_at and all(
            child[Counter.BUDGET_SPENT] and not child[Counter.HELD] for child in children
        )

    def _is_drained(self) -> bool:
        """Nothing in hand, the last claims found nothing, and the database agrees."""
        children = self.children()
        idle = (
            not self._respawn_at
            and self.reconciler.is_settled
            and all(child.ready and child[Counter.IDLE_SINCE_NS] and not child[Counter.HELD] for child in children)
        )
        if not idle:
            return False
        claimed = self.count(Counter.CLAIMED)
        try:
            with self._question.use() as connection:
                due = inspect.anything_due(connection, sorted(self.options.queues), registry.kinds())
        except psycopg.Error as exc:
            logger.warning("cannot see whether anything is due: %s", exc)
            return False
        if due:
            self.listener.wake_children()
        return not due and claimed == self.count(Counter.CLAIMED)

    def _stop_step(self) -> bool:
        """One look while stopping; whether no child is left."""
        now = time.monotonic()
        if self._kill_at is None:
            logger.info("stopping: %s", self._stop_reason)
            self._kill_at = now + self.options.shutdown_timeout.total_seconds()
            self._signals_at_stop = self._signals
            self.reconciler.draining = True
            for child in self.children():
                child.stop()
        forced = self._signals > max(self._signals_at_stop, 1)
        if (now >= self._kill_at or forced) and self.children() and self._exit_code != EXIT_JOBS_GIVEN_BACK:
            held = sum(child[Counter.HELD] for child in self.children())
            logger.warning("%s: %s jobs are given back", "forced" if forced else "--shutdown-timeout is over", held)
            self._exit_code = EXIT_JOBS_GIVEN_BACK
            for child in self.children():
                child.kill()
        return not self.children()

    def _farewell(self) -> None:
        """After the last child: settle its rows, give up the duties, leave no row behind."""
        deadline = time.monotonic() + FAREWELL_PATIENCE
        for child in self.children():  # only after an error of our own
            child.kill()
            self.reconciler.bury(child, "its supervisor failed", charge=False)
        while not self.reconciler.is_settled and time.monotonic() < deadline:
            time.sleep(0.02)
        for service in self._services:
            service.stop(timeout=0.0)
        for service in self._services:
            service.stop(timeout=max(deadline - time.monotonic(), 0.1))
        for step in (self.leader.resign, self.reconciler.withdraw):
            try:
                step()
            except psycopg.Error as exc:
                logger.warning("the database does not answer at the end: %s", exc)
        self._question.close()
        for end in self._signal_pipe:
            end.close()
        counts = ", ".join(
            f"{self.count(counter)} {counter.name.lower().replace('_', ' ')}" for counter in Counter if counter < Counter.HELD
        )
        logger.info("worker %s ended: %s", self.name, counts)

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Count TERM and INT while running; only the main thread may set handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        self._poke()

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            self._signal_pipe[1].send(b"!")


def _forkserver() -> BaseContext:
    """A forkserver that has Django set up, unless the project's start leaves threads or connections.

    A forked process would inherit both in an unusable state; then each child sets Django up itself.
    """
    context = multiprocessing.get_context("forkserver")
    if threading.active_count() == 1 and not any(each.connection for each in connections.all(initialized_only=True)):
        context.set_forkserver_preload(["awa_django.worker.preload"])
    return context
