"""Completer: writes outcomes. It takes all that have ended, writes them in one batch, and meanwhile
the next batch collects: no timer, so it is quick when idle and large under load."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

import psycopg

from awa_django import failpoints, signals
from awa_django.codec import JSON
from awa_django.logs import get_logger
from awa_django.storage import finalize, wake
from awa_django.storage.heartbeat import progress as store_progress
from awa_django.storage.rows import Attempt, Completion, Outcome
from awa_django.worker import verdict
from awa_django.worker.database import Session
from awa_django.worker.failure_log import FailureLog
from awa_django.worker.holdings import HeldJob, Holdings
from awa_django.worker.notifier import Notifier
from awa_django.worker.settle import Settlement, settle
from awa_django.worker.slots import Counter, SlotWriter

logger = get_logger(__name__)

# One statement: with two in a row, the slots of the first would wait for the second.
LARGEST_BATCH = 1_000
RETRY_SECONDS = (0.05, 3.0)  # shortest and longest wait before a batch is sent again

# What somebody else's lock was in the way of is tried again after this.
BLOCKED_WAIT = 0.5
# The loop shows that it lives at least this often.
IDLE_TICK = 5.0
# A failure that goes on is logged once in so many tries, which is about once a minute.
LOG_EVERY = 25

Ended: TypeAlias = tuple[HeldJob, Outcome | None]

_COUNTER_OF = {
    "completed": Counter.COMPLETED,
    "retried": Counter.RETRIED,
    "failed": Counter.FAILED,
    "cancelled": Counter.CANCELLED,
    "snoozed": Counter.SNOOZED,
    "released": Counter.RELEASED,
    "unknown_kind": Counter.UNKNOWN_KIND,
}
_BAD = (Counter.RETRIED, Counter.FAILED)


class Completer:
    """One thread that writes what handlers ended with, and gives back the slots once that is certain."""

    def __init__(
        self,
        *,
        session: Session,
        worker: str,
        slots: SlotWriter,
        holdings: Holdings,
        on_release: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._session = session
        self._worker = worker
        self._slots = slots
        self._holdings = holdings
        self._on_release = on_release
        self._ended: deque[Ended] = deque()
        self._blocked: list[Ended] = []
        self._retry_at = 0.0
        self._reports: dict[int, tuple[HeldJob, dict[str, JSON]]] = {}
        self._something = threading.Event()
        self._stopping = threading.Event()
        self._notifier = Notifier(worker=worker, holdings=holdings)
        self._failure_log = FailureLog()
        self._thread = threading.Thread(target=self._serve, name="awa-completer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End after the last outcome is written; whether it was in time."""
        self._stopping.set()
        self._something.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def put(self, held: HeldJob, outcome: Outcome | None) -> None:
        """An attempt has ended; None: its finish is committed already (``atomic``). From any thread."""
        self._ended.append((held, outcome))
        if not self._something.is_set():
            self._something.set()

    def report(self, held: HeldJob, progress: dict[str, JSON]) -> None:
        """Store progress of a running attempt with the next batch; what is not in it keeps its value."""
        if held.progress is None:
            stored = json.loads(held.job.progress) if held.job.progress else {}
            held.progress = stored if isinstance(stored, dict) else {}
        held.progress |= progress
        self._reports[held.slot] = held, dict(held.progress)
        self._something.set()

    def _serve(self) -> None:
        while True:
            self._something.wait(self._seconds_to_retry())
            self._something.clear()
            while self._ended or self._reports or self._seconds_to_retry() == 0.0:
                try:
                    self._write_batch()
                except Exception:
                    logger.exception("the completer stumbled and goes on")
                    time.sleep(RETRY_SECONDS[0])
            self._slots.set(Counter.COMPLETER_TICK_NS, time.monotonic_ns())
            is_over = self._stopping.is_set() and not self._ended and not self._blocked
            self._failure_log.flush(all_of_them=is_over)
            if is_over:
                self._session.close()
                self._notifier.stop()
                return

    def _seconds_to_retry(self) -> float:
        """Until blocked outcomes are sent again, or the loop shows that it lives."""
        if not self._blocked:
            return IDLE_TICK
        return max(self._retry_at - time.monotonic(), 0.0)

    def _write_batch(self) -> None:
        failpoints.hit("in_completer")
        self._write_reports()
        self._write(self._next_batch(), is_patient=True)
        if self._blocked and time.monotonic() >= self._retry_at:
            blocked, self._blocked = self._blocked, []
            self._retry_at = time.monotonic() + RETRY_SECONDS[1]
            self._write(blocked, is_patient=False)

    def _write(self, batch: list[Ended], *, is_patient: bool) -> None:
        """Write them until the database has answered for each: done, stale, or blocked for now.

        Each job once at a time, as answers come by job id: two runs of one may end together (the
        older one was rescued, and the job claimed again here).
        """
        ids: set[int] = set()
        singles: list[Ended] = []
        twins: list[Ended] = []
        for each in batch:
            (twins if each[0].job.id in ids else singles).append(each)
            ids.add(each[0].job.id)
        self._write_singles(singles, is_patient=is_patient)
        if twins:
            self._write(twins, is_patient=is_patient)

    def _write_singles(self, batch: list[Ended], *, is_patient: bool) -> None:
        finished_already = [held for held, outcome in batch if outcome is None]
        if finished_already:
            self._slots.add(Counter.COMPLETED, len(finished_already))
            if signals.are_heard():
                for held in finished_already:
                    self._notifier.put(held, Completion(held.attempt))
            else:
                self._holdings.give_back(finished_already)
        waiting = {held.job.id: (held, outcome) for held, outcome in batch if outcome is not None}
        # What was blocked may have been written by a send whose answer was lost.
        sent_before = not is_patient
        failures = 0
        while waiting:
            try:
                failpoints.hit("before_finish")
                self._send(waiting, sent_before=sent_before, is_patient=is_patient)
                return
            except Exception as exc:  # whatever it is, what has ended must be written
                sent_before = True
                if not isinstance(exc, psycopg.Error):
                    logger.exception("finishing %s jobs failed, trying again", len(waiting))
                elif failures % LOG_EVERY == 0:
                    logger.warning("finishing %s jobs failed, trying again: %s", len(waiting), exc)
                shortest, longest = RETRY_SECONDS
                time.sleep(min(shortest * 2.0**failures, longest) * random.uniform(0.5, 1.0))
                failures = min(failures + 1, 1_000)

    def _next_batch(self) -> list[Ended]:
        return [self._ended.popleft() for _ in range(min(len(self._ended), LARGEST_BATCH))]

    def _send(
        self, waiting: dict[int, tuple[HeldJob, Outcome]], *, sent_before: bool, is_patient: bool
    ) -> None:
        """Write them once. What is blocked waits apart: one locked row stops no other."""
        with self._session.use() as connection:
            outcomes = [outcome for _, outcome in waiting.values()]
            settlement = settle(connection, outcomes, worker=self._worker, is_patient=is_patient)
            done = settlement.done
            blocked = {outcome.attempt.job_id for outcome in settlement.blocked}
            missing = [job_id for job_id in waiting if job_id not in done and job_id not in blocked]
            if missing and sent_before:
                # The first send may have been done although its answer was lost.
                done = done | finalize.settled(
                    connection,
                    [waiting[job_id][0].attempt for job_id in missing],
                    worker=self._worker,
                    gone_is_settled=[
                        isinstance(outcome := waiting[job_id][1], Completion) and outcome.delete
                        for job_id in missing
                    ],
                )
            if settlement.released_queues:
                wake.wake(connection, sorted(settlement.released_queues))
        failpoints.hit("after_finish")
        if blocked:
            self._blocked += [waiting[job_id] for job_id in blocked]
            self._retry_at = time.monotonic() + BLOCKED_WAIT
        self._confirm(waiting, done, blocked, settlement)

    def _confirm(
        self,
        waiting: dict[int, tuple[HeldJob, Outcome]],
        done: set[int],
        blocked: set[int],
        settlement: Settlement,
    ) -> None:
        counts: Tally[Counter] = Tally()
        others = blocked | settlement.instead.keys() | settlement.superseded
        for job_id, (held, outcome) in waiting.items():
            if type(outcome) is Completion and job_id in done and job_id not in others:
                counts[Counter.COMPLETED] += 1
            elif job_id not in blocked:
                counts[self._became(held, outcome, done, settlement)] += 1
        for counter, count in counts.items():
            self._slots.add(counter, count)
        if Counter.RELEASED in counts:
            self._on_release(counts[Counter.RELEASED])
        concluded = (held for job_id, (held, _) in waiting.items() if job_id not in blocked)
        if not signals.are_heard():
            self._holdings.give_back(concluded)
            return
        for held in concluded:
            job_id = held.job.id
            outcome = settlement.instead.get(job_id, waiting[job_id][1])
            if job_id in done and verdict.describe(outcome) in signals.BY_END:
                self._notifier.put(held, outcome)
            else:
                self._holdings.give_back([held])

    def _became(self, held: HeldJob, outcome: Outcome, done: set[int], settlement: Settlement) -> Counter:
        """What its run counts as; says so where that is bad."""
        job_id = held.job.id
        if job_id in settlement.superseded:
            return Counter.SUPERSEDED
        if job_id in settlement.instead:
            return _COUNTER_OF[verdict.describe(settlement.instead[job_id])]
        if job_id in done:
            counter = _COUNTER_OF[verdict.describe(outcome)]
            if counter in _BAD:
                self._failure_log.note(held.job, outcome)
            return counter
        logger.warning(
            "job %s: its run was over (rescued or cancelled) when it %s; that is dropped",
            job_id,
            verdict.describe(outcome),
            extra={"job_id": job_id, "run_lease": held.job.run_lease, "kind": held.job.kind},
        )
        return Counter.STALE

    def _write_reports(self) -> None:
        reports = {}
        while self._reports:
            _, (held, progress) = self._reports.popitem()
            reports[held.attempt] = json.dumps(progress)
        if not reports:
            return
        try:
            try:
                with self._session.use() as connection:
                    store_progress(connection, reports)
            except (psycopg.DataError, psycopg.IntegrityError):
                self._write_reports_singly(reports)
        except psycopg.Error as exc:
            # Progress is for people, and the next report carries all of it.
            logger.warning("storing the progress of %s jobs failed: %s", len(reports), exc)

    def _write_reports_singly(self, reports: Mapping[Attempt, str]) -> None:
        for attempt, report in reports.items():
            try:
                with self._session.use() as connection:
                    store_progress(connection, {attempt: report})
            except (psycopg.DataError, psycopg.IntegrityError) as exc:
                logger.warning(
                    "job %s: its progress cannot be stored: %s",
                    attempt.job_id,
                    exc,
                    extra={"job_id": attempt.job_id, "run_lease": attempt.run_lease},
                )
