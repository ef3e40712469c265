"""The queue as plain Python: what each verb of the engine does to the rows, and what it answers.

Written from the documentation of the queue, not from its SQL. Jobs are immutable values, so a copy
of a model is cheap: each verb works on one and keeps it only if the whole of it went through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from awa_django.retry import Exponential, from_json
from awa_django.states import DEFERRED_STATES, TERMINAL_STATES, JobState

FIRST_DATE = datetime.fromisoformat("0001-02-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a test compares of an error entry."""

    outcome: str
    attempt: int
    run_lease: int | None
    worker: str | None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Between:
    """An instant that is known up to a jitter."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """A row, with its columns in the order of the table."""

    id: int
    kind: str
    queue: str = "default"
    args: Any = field(default_factory=dict)
    state: str = "available"
    priority: int = 2
    attempt: int = 0
    max_attempts: int = 25
    run_at: datetime | Between
    heartbeat_at: datetime | None = None
    deadline_at: datetime | None = None
    attempted_at: datetime | None = None
    finalized_at: datetime | None = None
    created_at: datetime
    errors: tuple[Entry, ...] = ()
    metadata: Any = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    unique_key: bytes | None = None
    unique_states: str | None = None
    run_lease: int = 0
    progress: Any = None
    result: Any = None
    worker: str | None = None

    @property
    def is_deferred(self) -> bool:
        return self.state in DEFERRED_STATES

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def held_key(self) -> bytes | None:
        """The key that the job holds in its state."""
        if self.unique_key is None or self.unique_states is None:
            return None
        bit = self.unique_states[list(JobState).index(JobState(self.state))]
        return self.unique_key if bit == "1" else None

    def without_bit(self, state: str) -> str | None:
        if self.unique_states is None:
            return None
        bits = list(self.unique_states)
        bits[list(JobState).index(JobState(state))] = "0"
        return "".join(bits)

    def is_due(self, now: datetime) -> bool:
        assert isinstance(self.run_at, datetime)
        return self.run_at <= now

    def ended(self, state: str, now: datetime, **changes: Any) -> ModelJob:
        return replace(
            self,
            **{
                "state": state,
                "finalized_at": now,
                "heartbeat_at": None,
                "deadline_at": None,
                "attempt": min(self.attempt, self.max_attempts),
                **changes,
            },
        )


class Conflict(Exception):
    """A job would hold a key that another one holds."""

    def __init__(self, holder_id: int) -> None:
        super().__init__(holder_id)
        self.holder_id = holder_id


Change = Callable[[ModelJob], ModelJob | None]
"""What becomes of a job: another value of it, or None when it is deleted."""


class Model:
    """All jobs, and who holds which key; ``now`` stands still."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[int, ModelJob] = {}
        self.claims: dict[bytes, int] = {}
        self.paused: dict[str, datetime | None] = {}

    def copy(self) -> Model:
        twin = Model(self.now)
        twin.adopt(self)
        return twin

    def adopt(self, other: Model) -> None:
        self.jobs, self.claims, self.paused = dict(other.jobs), dict(other.claims), dict(other.paused)

    def put(self, job: ModelJob) -> None:
        """Insert or replace a job with its claim. Raises: Conflict."""
        key = job.held_key
        holder_id = None if key is None else self.claims.get(key)
        if holder_id not in (None, job.id):
            assert holder_id is not None
            raise Conflict(holder_id)
        self.remove(job.id)
        self.jobs[job.id] = job
        if key is not None:
            self.claims[key] = job.id

    def remove(self, job_id: int) -> None:
        old = self.jobs.pop(job_id, None)
        if old is not None and old.held_key is not None:
            del self.claims[old.held_key]

    def change_all(self, job_ids: Iterable[int], change: Change, *, takers_first: bool = False) -> list[int]:
        """One statement over several jobs, all or nothing; the ids. Raises: Conflict.

        A key may pass from one job to another within it, or collide: which of both depends on the
        order in which the rows are found. By default who lets go of a key comes first.
        """
        changed = [(job_id, change(self.jobs[job_id])) for job_id in job_ids]
        changed.sort(key=lambda pair: (pair[1] is not None and pair[1].held_key is not None) != takers_first)
        draft = self.copy()
        for job_id, job in changed:
            if job is None:
                draft.remove(job_id)
            else:
                draft.put(job)
        self.adopt(draft)
        return sorted(job_id for job_id, _ in changed)

    def is_paused(self, queue: str) -> bool:
        if queue not in self.paused:
            return False
        until = self.paused[queue]
        return until is None or until > self.now

    def running(self, job_id: int, run_lease: int) -> ModelJob | None:
        """The job, if this run of it is not over."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.state == "running" and job.run_lease == run_lease else None

    # Enqueue

    def insert(self, job: ModelJob) -> None:
        """A job of the API: deferred when it is due later. Raises: Conflict."""
        self.put(replace(job, state="available" if job.is_due(self.now) else "scheduled"))

    def change_holder(self, holder_id: int, new: ModelJob, *, replaces_args: bool, reschedules: bool) -> bool:
        """The job that wants a key changes its holder; whether that one waits, so that it can."""
        job = self.jobs[holder_id]
        puts_off = reschedules and not new.is_due(self.now)
        if job.state == "available":
            if not (replaces_args or puts_off):
                return False
        elif not job.is_deferred:
            return False
        if replaces_args:
            job = replace(job, args=new.args)
        if puts_off or (reschedules and job.is_deferred):
            job = replace(job, run_at=new.run_at, state=job.state if job.is_deferred else "scheduled")
        self.put(job)
        return True

    # Claim

    def candidates(self, queue: str, excluded_kinds: Sequence[str]) -> list[ModelJob]:
        """What a claim may take from the queue, best first."""
        if self.is_paused(queue):
            return []
        found = [
            job
            for job in self.jobs.values()
            if job.state == "available"
            and job.queue == queue
            and job.is_due(self.now)
            and job.kind not in excluded_kinds
        ]
        return sorted(found, key=lambda job: (job.priority, job.run_at, job.id))

    def claim(
        self, job_ids: Sequence[int], worker: str, hold: timedelta, *, takers_first: bool = False
    ) -> list[int]:
        """Claim these; one whose row refuses it is cancelled by name. The ids that run."""

        def claimed(job: ModelJob) -> ModelJob:
            timeout = job.metadata.get("awa:timeout")
            deadline = None if timeout is None else self.now + hold + timedelta(seconds=timeout)
            return replace(
                job,
                state="running",
                attempt=min(job.attempt, job.max_attempts) + 1,
                run_lease=job.run_lease + 1,
                attempted_at=self.now,
                heartbeat_at=self.now,
                deadline_at=deadline,
                worker=worker,
            )

        try:
            return self.change_all(job_ids, claimed, takers_first=takers_first)
        except Conflict:
            pass
        running = []
        for job_id in job_ids:
            try:
                running += self.change_all([job_id], claimed)
            except Conflict:
                self.supersede(job_id, worker)
        return running

    def supersede(self, job_id: int, worker: str) -> None:
        """A waiting job cannot go on, as another one holds its key: cancelled, without a claim to it."""
        job = self.jobs[job_id]
        note = Entry("superseded", job.attempt, None, worker)
        self.put(
            replace(
                job,
                state="cancelled",
                finalized_at=self.now,
                unique_states=job.without_bit("cancelled"),
                errors=(*job.errors, note),
            )
        )

    # Promotion and pruning

    def promote(self, worker: str, *, takers_first: bool = False) -> None:
        due = [job for job in self.jobs.values() if job.is_deferred and job.is_due(self.now)]
        order = [job.id for job in sorted(due, key=lambda job: (job.run_at, job.id))]

        def promoted(job: ModelJob) -> ModelJob:
            return replace(job, state="available")

        try:
            self.change_all(order, promoted, takers_first=takers_first)
            return
        except Conflict:
            pass
        for job_id in order:
            try:
                self.change_all([job_id], promoted)
            except Conflict:
                self.supersede(job_id, worker)

    def prune(self, kept: Callable[[str, str], timedelta]) -> None:
        for job in list(self.jobs.values()):
            if job.finalized_at is not None and job.finalized_at < self.now - kept(job.queue, job.state):
                self.remove(job.id)

    def lost(self, stale_after: timedelta) -> list[tuple[ModelJob, str]]:
        """Running jobs that nobody answers for, and how their runs end."""
        found = []
        for job in sorted(self.jobs.values(), key=lambda job: job.id):
            if job.state != "running":
                continue
            overdue = job.deadline_at is not None and job.deadline_at < self.now
            silent = job.heartbeat_at is None or job.heartbeat_at < self.now - stale_after
            if overdue or silent:
                found.append((job, "timed_out" if overdue else "rescued"))
        return found

    def backoff(self, job: ModelJob) -> datetime | Between:
        """When a job that failed may run again: its own policy's word, or the default's with its jitter."""
        own = job.metadata.get("awa:retry")
        if own is not None:
            return self.now + from_json(own).delay(job.attempt)
        longest = Exponential(jitter=0.0).delay(job.attempt)
        return Between(self.now + longest / 2, self.now + longest)
