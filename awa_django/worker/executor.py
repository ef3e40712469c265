"""Executor: starts held jobs within the limits, ``def`` handlers on threads, ``async def`` on one loop."""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from django.db import connections

from awa_django import failpoints, registry
from awa_django.conf import get_settings
from awa_django.logs import get_logger
from awa_django.storage.rows import Outcome, Release
from awa_django.worker import verdict
from awa_django.worker.attempt import run_attempt, timeout_of
from awa_django.worker.django_connections import prepare_own_thread, tidy_own_thread
from awa_django.worker.holdings import HeldJob, handler_of
from awa_django.worker.loop_runner import LoopRunner
from awa_django.worker.options import WorkerOptions
from awa_django.worker.sink import Sink, give_up
from awa_django.worker.slots import SlotWriter

logger = get_logger(__name__)

# A held job should start within this: it decides how many may be held beyond what runs.
START_WITHIN = 0.1
# Share of the newest duration in the running mean of handler times.
_MEAN_SHARE = 0.05
# Where some of what was held has not started in time (quick handlers, and a slow one in each slot), no more
# than so many are held ahead for so many seconds: each that is given back costs two statements' share.
MODEST_PREFETCH = 500
MODEST_FOR = 10.0


class Lane:
    """Held jobs of one queue and one way to run, in the order of their claim."""

    __slots__ = ("is_async", "jobs", "queue")

    def __init__(self, queue: str, *, is_async: bool) -> None:
        self.queue = queue
        self.is_async = is_async
        self.jobs: deque[HeldJob] = deque()


class Executor:
    """Takes held jobs from the claimer and gives their outcomes to the sink.

    What runs is bounded in all, by queue, and by threads; what may not start yet waits in lanes.
    ``on_empty`` is told, from any thread, when one has ended and nothing waits in them any more.
    """

    def __init__(
        self,
        *,
        options: WorkerOptions,
        worker: str,
        slots: SlotWriter,
        sink: Sink,
        on_empty: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._on_empty = on_empty
        self._worker = worker
        self._slots = slots
        self._sink = sink
        settings = get_settings()
        # Seconds after its claim for which no lease can be lost, even if nobody beats for it.
        self._sure_for = (settings.stale_after - settings.heartbeat_interval).total_seconds()
        self._threads: list[threading.Thread] = []
        self._starting: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._loop_runner = LoopRunner(
            worker=worker,
            slots=slots,
            sink=sink,
            on_ended=self._ended,
            sure_for=self._sure_for,
            handler_threads=lambda: self._threads,
        )
        self._mean_seconds = float("inf")
        # When a handler last ended, or the first one started after a pause.
        self._moved_at = 0.0
        self._modest_until = 0.0
        # All that follows is guarded by the lock.
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, bool], Lane] = {}  # only those with jobs
        self._running_count = 0
        self._on_threads = 0
        self._running_of: Tally[str] = Tally()

    def start(self) -> None:
        for number in range(min(self._options.threads, self._options.concurrency)):
            thread = threading.Thread(target=self._serve, name=f"awa-handler-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def prefetch(self, limit: int) -> int:
        """How many jobs beyond those that run would start within ``START_WITHIN``, at the recent speed.

        None before one has ended. That none has ended for a while counts as well: those that run are slow.
        """
        if time.monotonic() < self._modest_until:
            limit = min(limit, MODEST_PREFETCH)
        seconds = max(self._mean_seconds, 1e-6)
        if self._running_count:
            seconds = max(seconds, time.monotonic() - self._moved_at)
        return min(int(START_WITHIN * self._options.concurrency / seconds), limit)

    def submit(self, held: Iterable[HeldJob]) -> int:
        """Start them as soon as the limits let them; how many had a kind unknown here."""
        unknown_count = 0
        known = []
        for each in held:
            job = each.job
            each.handler = registry.find(job.kind)
            if each.handler is None:
                unknown_count += 1
                self._sink.put(each, verdict.unknown_kind(job))
            elif (job.attempt > job.max_attempts or job.metadata is not None) and (
                ending := verdict.not_begun(job, worker=self._worker)
            ) is not None:
                self._sink.put(each, ending)
            else:
                known.append(each)
        with self._lock:
            for each in known:
                self._wait_in_lane(each)
            chosen = self._startable()
        self._start(chosen)
        return unknown_count

    def release_unstarted(self, *, held_before: float) -> int:
        """Give back what was taken into hand before that monotonic instant and has not started."""
        released = []
        with self._lock:
            for key, lane in list(self._lanes.items()):
                while lane.jobs and lane.jobs[0].held_at <= held_before:
                    released.append(lane.jobs.popleft())
                if not lane.jobs:
                    del self._lanes[key]
        if released:
            self._modest_until = time.monotonic() + MODEST_FOR
        self.give_back(released)
        return len(released)

    def give_back(self, held: Iterable[HeldJob]) -> None:
        """Release jobs that have not started and are in no lane."""
        for each in held:
            self._sink.put(each, Release(each.attempt))

    def cancel_marked(self) -> None:
        """Pass the supervisor's cancel marks on to ``async`` handlers (``def`` handlers look themselves)."""
        self._loop_runner.cancel_marked()

    def stop(self) -> None:
        """Let the threads and the loop end once they are idle."""
        for _ in self._threads:
            self._starting.put(None)
        self._loop_runner.stop()

    # Under the lock: which jobs may start.

    def _wait_in_lane(self, held: HeldJob) -> None:
        is_async = handler_of(held).is_async
        key = held.job.queue, is_async
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(held.job.queue, is_async=is_async)
        lane.jobs.append(held)

    def _startable(self) -> list[HeldJob]:
        """Take out of the lanes what may start now, the lanes in turn."""
        chosen = []
        while (held := self._next()) is not None:
            chosen.append(held)
        return chosen

    def _in_place_of(self, queue: str, *, is_async: bool) -> list[HeldJob]:
        """Take out of the lanes what may start when one of this queue has ended."""
        if len(self._lanes) == 1 and (lane := self._lanes.get((queue, is_async))) is not None:
            # As a rule it is the next one of the only lane, and all counts stay.
            following = lane.jobs.popleft()
            if not lane.jobs:
                self._lanes.clear()
            return [following]
        self._running_count -= 1
        self._running_of[queue] -= 1
        self._on_threads -= not is_async
        return self._startable() if self._lanes else []

    def _next(self) -> HeldJob | None:
        if self._running_count >= self._options.concurrency:
            return None
        for key, lane in self._lanes.items():
            if self._running_of[lane.queue] >= self._options.queues.get(lane.queue, 1):
                continue
            if not lane.is_async and self._on_threads >= len(self._threads):
                continue
            held = lane.jobs.popleft()
            del self._lanes[key]
            if lane.jobs:
                self._lanes[key] = lane  # to the end: the lanes take turns
            if not self._running_count:
                self._moved_at = time.monotonic()
            self._running_count += 1
            self._running_of[lane.queue] += 1
            self._on_threads += not lane.is_async
            return held
        return None

    def _start(self, chosen: Iterable[HeldJob]) -> None:
        for_loop = []
        for held in chosen:
            if handler_of(held).is_async:
                for_loop.append(held)
            else:
                self._starting.put(held)
        if for_loop:
            self._loop_runner.start(for_loop)

    def _ended(self, held: HeldJob, outcome: Outcome | None) -> HeldJob | None:
        """Hand over the outcome and start what may start now; the job for this thread to go on with."""
        failpoints.hit("after_handler")
        self._slots.end(held.slot)
        now = self._moved_at = time.monotonic()
        seconds = now - held.started_at
        if self._mean_seconds < float("inf"):
            seconds = self._mean_seconds + (seconds - self._mean_seconds) * _MEAN_SHARE
        self._mean_seconds = seconds
        self._sink.put(held, outcome)
        is_async = handler_of(held).is_async
        with self._lock:
            chosen = self._in_place_of(held.job.queue, is_async=is_async)
            is_empty = not self._lanes
        if is_empty:
            self._on_empty()
        if not chosen:
            return None
        goes_on = not is_async and not handler_of(chosen[-1]).is_async
        own = chosen.pop() if goes_on else None
        if chosen:
            self._start(chosen)
        return own

    # On the threads.

    def _serve(self) -> None:
        try:
            prepare_own_thread()
            while (held := self._starting.get()) is not None:
                following: HeldJob | None = held
                while following is not None:
                    following = self._run(following)
        except BaseException as exc:  # noqa: BLE001  (also what a handler raises in threads not its own)
            give_up(exc)
        connections.close_all()

    def _run(self, held: HeldJob) -> HeldJob | None:
        try:
            outcome = self._attempt(held)
        except Exception as exc:
            logger.exception("job %s: its attempt could not be made", held.job.id, extra=_extra(held))
            outcome = verdict.raised(held.job, exc, worker=self._worker)
        try:
            tidy_own_thread()
        except Exception:
            logger.exception("closing connections after job %s failed", held.job.id, extra=_extra(held))
        return self._ended(held, outcome)

    def _attempt(self, held: HeldJob) -> Outcome | None:
        tidy_own_thread()
        handler = handler_of(held)
        timeout = timeout_of(held.job, handler)
        started = held.started_at = time.monotonic()
        if held.is_too_late:
            return Release(held.attempt)
        must_end_at = started + timeout if timeout is not None else 0.0
        self._slots.start(held.slot, must_end_at)

        def cancelled() -> bool:
            if must_end_at and time.monotonic() >= must_end_at:
                return True
            return self._slots.is_cancelled(held.slot, held.attempt)

        failpoints.hit("before_handler")
        return run_attempt(
            held.job,
            handler,
            worker=self._worker,
            cancelled=cancelled,
            report=lambda progress: self._sink.report(held, progress),
            begin_by=held.held_at + self._sure_for,
        )


def _extra(held: HeldJob) -> dict[str, object]:
    return {"job_id": held.job.id, "run_lease": held.job.run_lease, "kind": held.job.kind}
