"""LoopRunner: runs the ``async def`` handlers of one process, all on one event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.signals import connection_created

from awa_django.logs import get_logger
from awa_django.storage.rows import Outcome, Release
from awa_django.worker.attempt import run_attempt_async, timeout_of
from awa_django.worker.django_connections import has_connected, tidy, tidy_own_thread
from awa_django.worker.holdings import HeldJob, handler_of
from awa_django.worker.sink import Sink, give_up
from awa_django.worker.slots import SlotWriter

logger = get_logger(__name__)

# Seconds for which jobs that wait for nothing may follow each other before others on the loop have a turn.
LONGEST_TURN = 0.002
# A task's first step is made by who makes the task, without a round of the loop (since Python 3.12).
_AT_ONCE: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class LoopRunner:
    """``start`` may be called from any thread; ``on_ended`` is called on the loop's own."""

    def __init__(
        self,
        *,
        worker: str,
        slots: SlotWriter,
        sink: Sink,
        on_ended: Callable[[HeldJob, Outcome | None], object],
        sure_for: float,
        handler_threads: Callable[[], Iterable[threading.Thread]],
    ) -> None:
        self._worker = worker
        self._slots = slots
        self._sink = sink
        self._on_ended = on_ended
        self._sure_for = sure_for
        self._handler_threads = handler_threads
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._has_connections = False
        self._closing: asyncio.Future[None] | None = None
        # What is begun; without a task while its first step runs.
        self._tasks: dict[int, tuple[HeldJob, asyncio.Task[None] | None]] = {}
        self._waiting: deque[HeldJob] = deque()
        self._is_spawning = False

    def start(self, batch: Iterable[HeldJob]) -> None:
        """Run their handlers; the loop is made when the first come."""
        if threading.current_thread() is self._thread:
            self._spawn(batch)
        else:
            self._ensure_loop().call_soon_threadsafe(self._spawn, batch)

    def cancel_marked(self) -> None:
        """Pass the supervisor's cancel marks on to the handlers; give back what a handler cancelled."""
        for held, task in list(self._tasks.values()):
            if self._loop is None or task is None:
                continue
            if task.done():
                self._loop.call_soon_threadsafe(self._give_back_unbegun, held)
            elif held.is_told_to_stop:
                continue  # once: its cleaning up must not be cancelled too
            elif self._slots.is_cancelled(held.slot, held.attempt):
                held.is_told_to_stop = True
                self._loop.call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """Let the loop end."""
        self._is_stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # the claimer and each handler thread may bring the first
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                connection_created.connect(self._note_connection)
                # asgiref's thread may have been there before, and connected: by something that was imported.
                self._has_connections = self._has_connections or any(
                    has_connected(thread)
                    for thread in threading.enumerate()
                    if thread is not threading.main_thread() and thread not in self._handler_threads()
                )
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="awa-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._is_stopping:
            # asyncio lets SystemExit and KeyboardInterrupt out of the tasks that handlers make, and
            # anybody may stop the loop that he runs on: the other jobs on it must go on.
            try:
                loop.run_forever()
            except BaseException:
                logger.exception("a handler broke out of the event loop, which goes on")
        connections.close_all()
        loop.close()

    def _spawn(self, batch: Iterable[HeldJob]) -> None:
        """Begin them. A handler that waits for nothing ends in here, and its successor is begun as well."""
        assert self._loop is not None
        self._waiting.extend(batch)
        if self._is_spawning:
            return  # by the end of one that was begun in here
        self._is_spawning = True
        until = time.monotonic() + LONGEST_TURN
        try:
            while self._waiting:
                self._begin(self._waiting.popleft(), self._loop)
                if time.monotonic() > until:
                    break
        finally:
            self._is_spawning = False
            if self._waiting:
                self._loop.call_soon(self._spawn, ())

    def _begin(self, held: HeldJob, loop: asyncio.AbstractEventLoop) -> None:
        self._tasks[held.slot] = held, None
        # In a context of its own: who spawns it may be in that of the handler that ended before.
        task = asyncio.Task(self._run(held), loop=loop, context=Context(), **_AT_ONCE)
        if not task.done():
            self._tasks[held.slot] = held, task

    def _give_back_unbegun(self, held: HeldJob) -> None:
        """Its task is done, and its end was never told: it was cancelled before its first step, by a handler
        that cancels all tasks of the loop (before Python 3.12)."""
        spawned, _ = self._tasks.get(held.slot, (None, None))
        if spawned is held:
            del self._tasks[held.slot]
            held.started_at = time.monotonic()
            self._on_ended(held, Release(held.attempt))

    async def _run(self, held: HeldJob) -> None:
        try:
            handler = handler_of(held)
            timeout = timeout_of(held.job, handler)
            started = held.started_at = time.monotonic()
            if held.is_too_late:
                del self._tasks[held.slot]
                self._on_ended(held, Release(held.attempt))
                return
            self._slots.start(held.slot, started + timeout if timeout is not None else 0.0)
            outcome = await run_attempt_async(
                held.job,
                handler,
                worker=self._worker,
                cancelled=lambda: self._slots.is_cancelled(held.slot, held.attempt),
                report=lambda progress: self._sink.report(held, progress),
                prepare=self._cycle_connections if self._has_connections else None,
                begin_by=held.held_at + self._sure_for,
            )
            del self._tasks[held.slot]
            if self._has_connections and not self._tasks:
                # Nobody comes soon: what is to be closed after a job is closed now.
                self._closing = asyncio.ensure_future(self._cycle_connections())
            self._on_ended(held, outcome)
        except Exception as exc:  # noqa: BLE001
            give_up(exc)

    async def _cycle_connections(self) -> None:
        """Do round a job for Django's connections of the loop's helper thread what handler threads do."""
        # While others run, a transaction that is open there may be one of theirs.
        await sync_to_async(tidy if len(self._tasks) > 1 else tidy_own_thread)()

    def _note_connection(self, **_: object) -> None:
        """Async handlers use the database, on asgiref's thread: only then is it looked after."""
        if threading.current_thread() not in self._handler_threads():
            self._has_connections = True
