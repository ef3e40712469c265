"""One child process: a claimer, an executor and a completer, wired; drained when told to stop."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import NoReturn

from awa_django import failpoints
from awa_django.conf import get_settings
from awa_django.logs import get_logger
from awa_django.worker import middleware
from awa_django.worker.claimer import Claimer
from awa_django.worker.completer import Completer
from awa_django.worker.database import BATCH_PATIENCE, Session
from awa_django.worker.django_connections import disconnect
from awa_django.worker.executor import Executor
from awa_django.worker.forks import stop_signals, watch_forks
from awa_django.worker.holdings import LONGEST_HOLD, Holdings
from awa_django.worker.options import WorkerOptions
from awa_django.worker.set_up import set_up, take_path
from awa_django.worker.slots import SlotTable

logger = get_logger(__name__)

# How often the child looks after held jobs and cancel marks when nobody tells it anything.
HOUSEKEEPING = 0.25
# Its supervisor is gone, so nobody beats: what ends this long before staleness still counts.
ORPHAN_MARGIN = timedelta(seconds=5)
# Seconds that what jobs have registered for the end of their process may take.
EXIT_PATIENCE = 5.0

# What the supervisor says.
WAKE, STOP = "wake", "stop"
# What a child says: a word, or a word and why.
READY, REFUSED, ENDED = "ready", "refused", "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a child needs to know. ``application_name`` is the prefix of its sessions' names."""

    name: str
    application_name: str
    options: WorkerOptions
    slots: SlotTable
    budget: int | None = None
    """How many jobs it may claim in its life; None for no bound."""


def session_names(application_name: str) -> list[str]:
    """The application names of a child's own sessions."""
    return [f"{application_name}-claim", f"{application_name}-complete", f"{application_name}-scout"]


def run_child(spec: ChildSpec, pipe: Connection) -> None:
    """Entry point of a child process; ``pipe`` leads to its supervisor."""
    # The supervisor decides about signals sent to the whole group. A handler of our own, not
    # SIG_IGN: programs that jobs start would inherit that.
    for number in stop_signals():
        signal.signal(number, _leave_to_supervisor)
    try:
        failpoints.load()
        take_path()  # where no forkserver has
        set_up()
        watch_forks()
        middleware.load()
        child = Child(spec)
    except BaseException as exc:
        # SystemExit of the user's own too: who ends without a word is replaced, again and again.
        logger.exception("a worker process cannot start")
        pipe.send((REFUSED, f"{type(exc).__name__}: {exc}"))
        raise SystemExit(1) from exc
    child.serve(pipe)
    middleware.stop()
    with contextlib.suppress(OSError):  # the supervisor may be gone
        pipe.send((ENDED, ""))
    _leave()


def _leave_to_supervisor(number: int, frame: object) -> None:
    pass


def _leave() -> NoReturn:
    """End as an interpreter does, by ``atexit`` (daemonic processes too), but without its wait for threads.

    Those of the user's own may still run: they have no say in when the process ends.
    """
    try:
        watchdog = threading.Timer(EXIT_PATIENCE, os._exit, [0])
        watchdog.daemon = True
        watchdog.start()
        atexit._run_exitfuncs()
    finally:
        for flush in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
            with contextlib.suppress(Exception):  # there may be no such stream
                flush()
        os._exit(0)


class Child:
    """The three services of a child, and the order in which they stop."""

    def __init__(self, spec: ChildSpec) -> None:
        options = spec.options
        claim_name, complete_name, scout_name = session_names(spec.application_name)
        slots = spec.slots.writer()
        self.holdings = Holdings(options.queues, options.concurrency, slots)
        self.completer = Completer(
            session=Session(complete_name, patience=BATCH_PATIENCE, by_index=True),
            worker=spec.name,
            slots=slots,
            holdings=self.holdings,
            on_release=self._refund,
        )
        self.executor = Executor(
            options=options,
            worker=spec.name,
            slots=slots,
            sink=self.completer,
            on_empty=self.holdings.wake,
        )
        self.claimer = Claimer(
            session=Session(claim_name),
            scout_session=Session(scout_name),
            worker=spec.name,
            options=options,
            slots=slots,
            holdings=self.holdings,
            executor=self.executor,
            budget=spec.budget,
        )

    def serve(self, pipe: Connection) -> None:
        """Run until told to stop, or until the supervisor is gone; returns with nothing in hand."""
        disconnect()  # a forked process owns none of its parent's
        self.completer.start()
        self.executor.start()
        self.claimer.start()
        pipe.send((READY, ""))
        orphaned = self._listen(pipe)
        failpoints.hit("in_drain")
        self.claimer.stop()
        if orphaned:
            logger.error("the supervisor is gone: finishing what runs, then ending")
        self._drain(pipe, None if not orphaned else time.monotonic() + _orphan_seconds())
        self.executor.stop()
        self.completer.stop()

    def _listen(self, pipe: Connection) -> bool:
        """Until told to stop (False) or orphaned (True)."""
        while True:
            try:
                message = pipe.recv() if pipe.poll(HOUSEKEEPING) else None
            except (EOFError, OSError):
                return True
            if message == WAKE:
                self.claimer.wake()
            elif message == STOP:
                return False
            self._keep_house(held_before=time.monotonic() - LONGEST_HOLD)

    def _drain(self, pipe: Connection, until: float | None) -> None:
        """Release what has not started and wait for what has; the supervisor bounds it, or ``until``."""
        while len(self.holdings):
            self._keep_house(held_before=time.monotonic())
            self.holdings.wait_for_room(HOUSEKEEPING)
            if until is None:
                try:
                    while pipe.poll():
                        pipe.recv()
                except (EOFError, OSError):
                    until = time.monotonic() + _orphan_seconds()
            elif time.monotonic() > until:
                logger.error(
                    "%s jobs outlived their supervisor and are left to be rescued", len(self.holdings)
                )
                logging.shutdown()
                os._exit(1)

    def _keep_house(self, *, held_before: float) -> None:
        self.executor.release_unstarted(held_before=held_before)
        self.executor.cancel_marked()

    def _refund(self, count: int) -> None:
        self.claimer.refund(count)


def _orphan_seconds() -> float:
    """How long an orphan's runs are surely still its own: the last beat may be one interval old."""
    settings = get_settings()
    sure = settings.stale_after - settings.heartbeat_interval - ORPHAN_MARGIN
    return max(sure.total_seconds(), 0.0)
