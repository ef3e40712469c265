"""Executor: runs held jobs, ``def`` handlers on threads and ``async def`` handlers on one event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import Protocol

from django.db import close_old_connections, connections, reset_queries

from awa_django import registry
from awa_django.codec import JSON
from awa_django.storage.rows import Outcome, Release
from awa_django.worker import verdict
from awa_django.worker.attempt import run_attempt, run_attempt_async, timeout_of
from awa_django.worker.holdings import HeldJob
from awa_django.worker.slots import SlotWriter

# A held job should start within this: it decides how many may be held beyond what runs.
START_WITHIN = 0.1
# Share of the newest duration in the running mean of handler times.
_MEAN_SHARE = 0.05


class Sink(Protocol):
    """Where outcomes go: the completer."""

    def put(self, held: HeldJob, outcome: Outcome | None) -> None: ...
    def report(self, held: HeldJob, progress: dict[str, JSON]) -> None: ...


class Executor:
    """Takes held jobs from the claimer and gives their outcomes to the sink."""

    def __init__(self, *, threads: int, worker: str, slots: SlotWriter, sink: Sink) -> None:
        self._worker = worker
        self._slots = slots
        self._sink = sink
        self._thread_count = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[HeldJob | None] = SimpleQueue()
        # Whoever takes a job out of here may start it, or release it: dict.pop is atomic.
        self._unstarted: dict[int, HeldJob] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, tuple[HeldJob, asyncio.Task[None]]] = {}
        self._mean_seconds = START_WITHIN

    def start(self) -> None:
        for number in range(self._thread_count):
            thread = threading.Thread(target=self._serve, name=f"awa-handler-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def prefetch(self, concurrency: int, limit: int) -> int:
        """How many jobs beyond those that run would start within ``START_WITHIN``, at the recent speed."""
        return min(int(START_WITHIN * concurrency / max(self._mean_seconds, 1e-6)), limit)

    def submit(self, held: Iterable[HeldJob]) -> int:
        """Start them as soon as a thread or the loop is free; how many had a kind unknown here."""
        for_loop = []
        unknown_count = 0
        for each in held:
            job = each.job
            handler = registry.find(job.kind)
            if handler is None:
                unknown_count += 1
                self._sink.put(each, verdict.unknown_kind(job))
            elif job.attempt > job.max_attempts:
                self._sink.put(each, verdict.attempts_used_up(job, worker=self._worker))
            else:
                each.handler = handler
                self._unstarted[each.slot] = each
                if handler.is_async:
                    for_loop.append(each)
                else:
                    self._queue.put(each)
        if for_loop:
            self._ensure_loop().call_soon_threadsafe(self._spawn, for_loop)
        return unknown_count

    def release_unstarted(self, *, held_before: float) -> int:
        """Give back what was taken into hand before that monotonic instant and has not started."""
        count = 0
        for slot, held in list(self._unstarted.items()):
            if held.held_at <= held_before and self._unstarted.pop(slot, None) is held:
                self._sink.put(held, Release(held.attempt))
                count += 1
        return count

    def cancel_marked(self) -> None:
        """Pass the supervisor's cancel marks on to ``async`` handlers (``def`` handlers look themselves)."""
        for held, task in list(self._tasks.values()):
            if self._loop is not None and self._slots.is_cancelled(held.slot, held.attempt):
                self._loop.call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """Let the threads and the loop end once they are idle."""
        for _ in self._threads:
            self._queue.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        while (held := self._queue.get()) is not None:
            if self._unstarted.pop(held.slot, None) is held:
                self._run(held)
        connections.close_all()

    def _run(self, held: HeldJob) -> None:
        handler = held.handler
        assert handler is not None
        reset_queries()
        close_old_connections()
        timeout = timeout_of(held.job, handler)
        started = held.started_at = time.monotonic()
        must_end_at = started + timeout if timeout is not None else 0.0
        self._slots.start(held.slot, must_end_at)
        attempt = held.attempt

        def cancelled() -> bool:
            if must_end_at and time.monotonic() >= must_end_at:
                return True
            return self._slots.is_cancelled(held.slot, attempt)

        outcome = run_attempt(
            held.job,
            handler,
            worker=self._worker,
            cancelled=cancelled,
            report=lambda progress: self._sink.report(held, progress),
        )
        self._ended(held, outcome)
        close_old_connections()

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=self._serve_loop, args=(loop,), name="awa-loop", daemon=True).start()
            self._loop = loop
        return self._loop

    def _serve_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        connections.close_all()

    def _spawn(self, batch: Sequence[HeldJob]) -> None:
        assert self._loop is not None
        for held in batch:
            if self._unstarted.pop(held.slot, None) is held:
                self._tasks[held.slot] = held, self._loop.create_task(self._run_async(held))

    async def _run_async(self, held: HeldJob) -> None:
        handler = held.handler
        assert handler is not None
        timeout = timeout_of(held.job, handler)
        started = held.started_at = time.monotonic()
        self._slots.start(held.slot, started + timeout if timeout is not None else 0.0)
        outcome = await run_attempt_async(
            held.job,
            handler,
            worker=self._worker,
            cancelled=lambda: self._slots.is_cancelled(held.slot, held.attempt),
            report=lambda progress: self._sink.report(held, progress),
        )
        self._tasks.pop(held.slot, None)
        self._ended(held, outcome)

    def _ended(self, held: HeldJob, outcome: Outcome | None) -> None:
        self._slots.end(held.slot)
        self._mean_seconds += (time.monotonic() - held.started_at - self._mean_seconds) * _MEAN_SHARE
        self._sink.put(held, outcome)
