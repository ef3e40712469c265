"""The model of ``settle``: every way out of running, by batch, with what becomes of the row that refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tests.property.model import Between, Conflict, Entry, Model, ModelJob

GROUPS = {
    "complete": "complete",
    "keep_result": "complete",
    "unstorable": "complete",
    "delete": "delete",
    "retry": "defer",
    "snooze": "defer",
    "unknown_kind": "defer",
    "fail": "finish",
    "cancel": "finish",
    "release": "release",
}


class Unstorable(Exception):
    """The database refuses the value."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run ends: one outcome, as the worker's verdict."""

    job_id: int
    run_lease: int
    way: str
    """A key of ``GROUPS``."""
    run_at: datetime | Between | None = None
    entry: Entry | None = None
    result: Any = None


@dataclass(slots=True)
class Settled:
    """The answer of ``settle``."""

    done: set[int] = field(default_factory=set)
    released_queues: set[str] = field(default_factory=set)


def settle(model: Model, ends: Sequence[End], *, worker: str, takers_first: bool = False) -> Settled:
    """Write each group of ends; one that cannot be written is split until its bad row is alone."""
    answer = Settled()
    groups: dict[str, list[End]] = {}
    for end in ends:
        groups.setdefault(GROUPS[end.way], []).append(end)
    for group in groups.values():
        _write_or_split(model, group, worker, answer, takers_first=takers_first)
    return answer


def _write_or_split(
    model: Model, group: list[End], worker: str, answer: Settled, *, takers_first: bool
) -> None:
    live = {end.job_id: end for end in group if model.running(end.job_id, end.run_lease)}
    queues = {model.jobs[job_id].queue for job_id in live}
    try:
        model.change_all(
            sorted(live), lambda job: _after(model, job, live[job.id]), takers_first=takers_first
        )
    except (Conflict, Unstorable) as exc:
        if len(group) == 1:
            answer.done.add(_substitute(model, group[0], exc, worker))
            return
        middle = len(group) // 2
        _write_or_split(model, group[:middle], worker, answer, takers_first=takers_first)
        _write_or_split(model, group[middle:], worker, answer, takers_first=takers_first)
        return
    answer.done |= live.keys()
    if group[0].way == "release":
        answer.released_queues |= queues


def _after(model: Model, job: ModelJob, end: End) -> ModelJob | None:
    errors = job.errors if end.entry is None else (*job.errors, end.entry)
    deferred: dict[str, Any] = {
        "heartbeat_at": None,
        "deadline_at": None,
        "run_at": end.run_at,
        "errors": errors,
    }
    match end.way:
        case "unstorable":
            raise Unstorable
        case "complete" | "keep_result":
            return replace(
                job.ended("completed", model.now), attempt=job.attempt, progress=None, result=end.result
            )
        case "delete":
            return None
        case "retry":
            return replace(job, state="retryable", **deferred)
        case "snooze":
            return replace(job, state="scheduled", attempt=max(job.attempt - 1, 0), **deferred)
        case "unknown_kind":
            seen = job.metadata.get("awa:unknown_kind", {"count": 0})["count"]
            metadata = {**job.metadata, "awa:unknown_kind": {"count": seen + 1}}
            return replace(
                job, state="scheduled", attempt=max(job.attempt - 1, 0), metadata=metadata, **deferred
            )
        case "fail" | "cancel":
            state = "failed" if end.way == "fail" else "cancelled"
            return job.ended(state, model.now, errors=errors)
        case _:
            return replace(
                job,
                state="available",
                attempt=max(job.attempt - 1, 0),
                heartbeat_at=None,
                deadline_at=None,
            )


def _substitute(model: Model, end: End, exc: Exception, worker: str) -> int:
    """The nearest end that the database takes, by name; the id."""
    job = model.jobs[end.job_id]
    is_conflict = isinstance(exc, Conflict)
    outcome = "superseded" if is_conflict else "unwritable"
    entry = Entry(outcome, min(job.attempt, job.max_attempts), job.run_lease, worker)
    states = ["cancelled", "failed"] if is_conflict else ["failed", "cancelled"]
    ended = [job.ended(state, model.now, errors=(*job.errors, entry)) for state in states]
    ended.append(replace(ended[0], unique_states=job.without_bit(states[0])))
    for each in ended:
        try:
            model.put(each)
            break
        except Conflict:
            continue
    return job.id
