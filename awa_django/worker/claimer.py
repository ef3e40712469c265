"""Claimer: free slots -> claim -> executor."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import replace

import psycopg

from awa_django import failpoints, registry
from awa_django.conf import get_settings
from awa_django.logs import get_logger
from awa_django.storage.claim import ClaimRequest, claim_one, claimable, quarantine
from awa_django.storage.rows import ClaimedJob
from awa_django.worker import error_entry
from awa_django.worker.aging import aging_kinds
from awa_django.worker.cursor import ClaimCursor
from awa_django.worker.database import PsycopgConnection, Session
from awa_django.worker.executor import Executor
from awa_django.worker.holdings import LONGEST_HOLD, MAX_PREFETCH, Holdings
from awa_django.worker.options import WorkerOptions
from awa_django.worker.scout import Scout
from awa_django.worker.slots import Counter, SlotWriter
from awa_django.worker.trouble import Trouble

logger = get_logger(__name__)

# A statement of 1,000 jobs is past the point where more make it cheaper per job.
LARGEST_CLAIM = 1_000
# The leader ends an overdue run only this long after its own worker should have.
DEADLINE_SLACK = 5.0
# The first look after an empty one; each further one doubles it, up to POLL_INTERVAL.
FIRST_POLL = 0.02
# After an error: shortest and longest wait.
RETRY_SECONDS = (0.1, 3.0)
# With so many kinds left out of the claim its filter itself would cost too much.
MOST_EXCLUDED_KINDS = 1_000


class Claimer:
    """One thread that keeps the executor fed, and no fuller than it can start soon."""

    def __init__(
        self,
        *,
        session: Session,
        scout_session: Session,
        worker: str,
        options: WorkerOptions,
        slots: SlotWriter,
        holdings: Holdings,
        executor: Executor,
        budget: int | None = None,
    ) -> None:
        self._session = session
        self._options = options
        self._slots = slots
        self._holdings = holdings
        self._executor = executor
        self._budget = budget
        self._budget_lock = threading.Lock()
        self._cursor = ClaimCursor()
        self._scout = Scout(
            scout_session,
            self._cursor,
            excluded_kinds=lambda: tuple(self._excluded),
            on_found=self.wake,
        )
        self._empty_looks = 0
        self._largest = LARGEST_CLAIM
        self._excluded: set[str] = set()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="awa-claimer", daemon=True)
        poll = get_settings().poll_interval.total_seconds()
        self._poll_interval = poll
        self._request = ClaimRequest(
            limits={},
            total=0,
            worker=worker,
            timeouts=_timeouts(),
            hold=LONGEST_HOLD + DEADLINE_SLACK,
            aging_kinds=aging_kinds(),
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def stop(self) -> None:
        """No claim commits after this returns; what the last one took is with the executor."""
        self._stopping.set()
        self._wake.set()
        self._holdings.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def refund(self, count: int) -> None:
        """Claims that came to nothing (released unstarted) do not count against the budget."""
        if self._budget is not None:
            with self._budget_lock:
                self._budget += count
                self._slots.set(Counter.BUDGET_SPENT, int(self._budget <= 0))
            self._wake.set()

    def tick(self) -> float:
        """Claim once; how long to wait before the next, when nothing wakes the claimer."""
        prefetch = self._executor.prefetch(MAX_PREFETCH)
        limits, total = self._holdings.room(prefetch)
        total = min(total, self._largest)
        if self._budget is not None:
            with self._budget_lock:
                total = min(total, self._budget)
            if total <= 0 and self._budget <= 0:
                self._found_nothing()
                return self._poll_interval
        if total <= 0:
            self._found_something()
            self._holdings.wait_for_room(self._poll_interval)
            return 0.0
        request = replace(
            self._request,
            limits={queue: min(limit, total) for queue, limit in limits.items()},
            total=total,
            excluded_kinds=tuple(self._excluded),
        )
        asked_at = time.monotonic()
        with self._session.use() as connection:
            jobs = self._claim(connection, request)
        self._scout.go()
        if not jobs:
            return self._found_nothing()
        failpoints.hit("after_claim")
        self._found_something()
        self._dispatch(jobs, asked_at)
        # Fewer than asked for: the queues are empty now, unless something is paused or locked.
        return 0.0 if len(jobs) == total else FIRST_POLL

    def _dispatch(self, jobs: list[ClaimedJob], asked_at: float) -> None:
        self._slots.add(Counter.CLAIMED, len(jobs))
        if self._budget is not None:
            with self._budget_lock:
                self._budget -= len(jobs)
                self._slots.set(Counter.BUDGET_SPENT, int(self._budget <= 0))
        held = self._holdings.take(jobs)
        if time.monotonic() - asked_at > LONGEST_HOLD:
            # The answer took so long (a handler held the GIL, or rows are slow to change) that the rows
            # may be given back already. With fewer the next one is in time.
            self._largest = max(len(jobs) // 2, 1)
            self._executor.give_back(held)
            return
        self._largest = min(self._largest * 2, LARGEST_CLAIM)
        unknown_count = self._executor.submit(held)
        if unknown_count:
            self._note_unknown(jobs, unknown_count)

    def _claim(self, connection: PsycopgConnection, request: ClaimRequest) -> list[ClaimedJob]:
        try:
            return self._cursor.claim(connection, request)
        except (psycopg.IntegrityError, psycopg.DataError) as exc:
            logger.warning("a claim failed, claiming one by one: %s", exc)
            return self._claim_singly(connection, request)

    def _claim_singly(self, connection: PsycopgConnection, request: ClaimRequest) -> list[ClaimedJob]:
        """Some row refuses its claim: take the others, and put that one aside."""
        jobs = []
        if not connection.autocommit:
            connection.rollback()
        for job_id in claimable(connection, request):
            try:
                with connection.transaction():
                    job = claim_one(connection, job_id, request)
            except (psycopg.IntegrityError, psycopg.DataError) as exc:
                note = error_entry.refused(exc, worker=request.worker, what="it was to be claimed")
                with connection.transaction():
                    quarantine(connection, job_id, note)
                logger.error(
                    "job %s refuses its claim and is cancelled: %s", job_id, exc, extra={"job_id": job_id}
                )
            else:
                if job is not None:
                    jobs.append(job)
        return jobs

    def _note_unknown(self, jobs: list[ClaimedJob], unknown_count: int) -> None:
        kinds = {job.kind for job in jobs if registry.find(job.kind) is None}
        for kind in sorted(kinds - self._excluded)[:10]:
            logger.warning(
                "no handler for kind %r in this worker: its jobs are put back, uncharged",
                kind,
                extra={"kind": kind},
            )
        if unknown_count * 2 > len(jobs) and len(self._excluded) < MOST_EXCLUDED_KINDS:
            # Most of the claim was in vain: leave these kinds to a worker that knows them.
            self._excluded |= kinds

    def _found_nothing(self) -> float:
        if not self._empty_looks:
            self._slots.set(Counter.IDLE_SINCE_NS, time.monotonic_ns())
        wait = min(FIRST_POLL * 2.0 ** min(self._empty_looks, 16), self._poll_interval)
        self._empty_looks += 1
        complete_in = self._cursor.complete_in
        if complete_in is not None:
            wait = min(wait, complete_in)
        return wait * random.uniform(0.9, 1.0)

    def _found_something(self) -> None:
        self._empty_looks = 0
        self._slots.set(Counter.IDLE_SINCE_NS, 0)

    def _serve(self) -> None:
        trouble = Trouble("claiming", RETRY_SECONDS)
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                failpoints.hit("in_claimer")
                wait = self.tick()
                self._slots.set(Counter.CLAIMER_TICK_NS, time.monotonic_ns())
                trouble.is_over()
            except Exception as exc:  # noqa: BLE001  (the loop must outlive whatever a tick meets)
                self._slots.set(Counter.ANSWER_LOST_NS, time.monotonic_ns())
                wait = trouble.met(exc)
            if wait and not self._stopping.is_set():
                self._wake.wait(wait)
        self._scout.stop()
        self._session.close()


def _timeouts() -> str:
    """Kind (and alias) -> timeout in seconds as a JSON object, for the claim's deadlines."""
    return json.dumps(
        {
            kind: timeout.total_seconds()
            for handler in registry.handlers()
            if (timeout := handler.timeout) is not None
            for kind in (handler.kind, *handler.aliases)
        }
    )
