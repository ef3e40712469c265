"""The model of an operator's verbs, and of raw SQL through ``awa.jobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tests.property.model import Change, Conflict, Entry, Model, ModelJob

WAITING = ("available", "scheduled", "retryable")
LEGAL = {
    "scheduled": {"available", "cancelled"},
    "available": {"scheduled", "cancelled"},
    "running": {"scheduled", "available", "completed", "retryable", "failed", "cancelled"},
    "completed": set[str](),
    "retryable": {"available", "cancelled"},
    "failed": {"available"},
    "cancelled": {"available"},
}
IMMUTABLE = ("id", "kind", "unique_key", "unique_states", "run_lease", "created_at")
CHECK_VIOLATION, NOT_NULL_VIOLATION, UNIQUE_VIOLATION, GENERATED_ALWAYS = "23514", "23502", "23505", "428C9"


class Refused(Exception):
    """The statement fails with this SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@dataclass(slots=True)
class Answer:
    """The jobs changed; of each other one its state, and the holder of its key if that is why."""

    changed: list[int] = field(default_factory=list)
    refused: dict[int, tuple[str | None, int | None]] = field(default_factory=dict)


def operate(
    model: Model,
    job_ids: Sequence[int],
    change: Callable[[ModelJob], bool],
    become: Change,
    *,
    takers_first: bool = False,
) -> Answer:
    """One verb on several jobs: those in the hot table first, all at once if their keys allow it."""
    answer = Answer()
    holders: dict[int, int] = {}
    wanted = sorted(set(job_ids))
    for in_deferred in (False, True):
        there = [
            job_id
            for job_id in wanted
            if (job := model.jobs.get(job_id)) is not None
            and job_id not in answer.changed
            and job_id not in holders
            and job.is_deferred == in_deferred
            and change(job)
        ]
        try:
            answer.changed += model.change_all(there, become, takers_first=takers_first)
            continue
        except Conflict:
            pass
        for job_id in there:
            try:
                answer.changed += model.change_all([job_id], become)
            except Conflict as exc:
                holders[job_id] = exc.holder_id
    answer.changed.sort()
    for job_id in wanted:
        if job_id not in answer.changed:
            job = model.jobs.get(job_id)
            answer.refused[job_id] = (None if job is None else job.state, holders.get(job_id))
    return answer


def cancelled(model: Model, by: str) -> Change:
    def become(job: ModelJob) -> ModelJob:
        if job.is_deferred:
            return replace(job, state="cancelled", finalized_at=model.now)
        errors = job.errors
        if job.state == "running":
            attempt = min(job.attempt, job.max_attempts)
            errors = (*errors, Entry("cancelled", attempt, job.run_lease, job.worker, by))
        return job.ended("cancelled", model.now, errors=errors)

    return become


def rescheduled(run_at: datetime) -> Change:
    def become(job: ModelJob) -> ModelJob:
        return replace(job, run_at=run_at, state=job.state if job.is_deferred else "scheduled")

    return become


def retried(model: Model) -> Change:
    return lambda job: replace(job, state="available", attempt=0, run_at=model.now, finalized_at=None)


def run_now(model: Model) -> Change:
    return lambda job: replace(job, state="available", run_at=model.now)


def insert_through_view(model: Model, job_id: int, values: Mapping[str, Any]) -> ModelJob:
    """What ``INSERT INTO awa.jobs`` makes of the values. Raises: Refused."""
    if values.get("id") is not None:
        raise Refused(GENERATED_ALWAYS)
    if values.get("run_lease", 0) != 0 or values.get("state") == "running":
        raise Refused(CHECK_VIOLATION)
    given = dict(values)
    state = given.pop("state", None)
    job = ModelJob(**{"run_at": model.now, "created_at": model.now, **given, "id": job_id})
    if state in (None, "available"):
        state = "available" if job.is_due(model.now) else "scheduled"
    job = replace(job, state=state, heartbeat_at=None)
    job = replace(job, finalized_at=(job.finalized_at or model.now) if job.is_terminal else None)
    _check_ranges(job)
    return job


def update_through_view(model: Model, old: ModelJob, changes: Mapping[str, Any]) -> ModelJob:
    """What ``UPDATE awa.jobs SET ... WHERE id = ...`` makes of the job. Raises: Refused."""
    new = replace(old, **changes)
    if any(getattr(new, name) != getattr(old, name) for name in IMMUTABLE):
        raise Refused(CHECK_VIOLATION)
    if (new.queue, new.args) != (old.queue, old.args) and (
        old.unique_key is not None or old.state in ("running", "completed")
    ):
        raise Refused(CHECK_VIOLATION)
    if new.state is None:
        raise Refused(NOT_NULL_VIOLATION)
    used_up = old.state == "available" and new.state == "failed" and old.attempt >= old.max_attempts
    if new.state != old.state and new.state not in LEGAL[old.state] and not used_up:
        raise Refused(CHECK_VIOLATION)
    if new.state == "available":
        if old.state in ("failed", "cancelled") and new.attempt == old.attempt:
            new = replace(new, attempt=0)
        if not new.is_due(model.now) and (new.run_at != old.run_at or old.state != "available"):
            new = replace(new, state="retryable" if old.state == "retryable" else "scheduled")
    ended_at = (new.finalized_at or old.finalized_at or model.now) if new.is_terminal else None
    new = replace(new, finalized_at=ended_at)
    if new.state == "running":
        new = replace(new, heartbeat_at=new.heartbeat_at or old.heartbeat_at)
    else:
        new = replace(new, heartbeat_at=None, deadline_at=None)
    if new.state == "completed" and old.state != "completed":
        new = replace(new, progress=None)
    _check_ranges(new)
    return new


def _check_ranges(job: ModelJob) -> None:
    if not (
        -98 <= job.priority <= 102
        and 0 <= job.attempt <= 1001
        and 1 <= job.max_attempts <= 1000
        and 1 <= len(job.queue) <= 200
    ):
        raise Refused(CHECK_VIOLATION)
