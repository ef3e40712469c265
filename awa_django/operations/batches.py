"""How a verb is applied to many jobs: in batches, table by table, a conflict alone, a mover again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import psycopg
from django.db import IntegrityError, connections, transaction

from awa_django.conf import get_settings
from awa_django.operations.results import OperationResult, Refusal
from awa_django.states import JobState
from awa_django.storage import operate
from awa_django.storage.operate import Located, Rows
from awa_django.storage.rows import LARGEST_ID
from awa_django.storage.wake import wake

# Ids per statement: bounds how many rows one statement locks (about 20 ms of work).
BATCH = 1000
# A job may move between the tables just between our two statements; that often in a row is a storm.
ROUNDS = 3

Step = Callable[[Any, Sequence[int]], Rows]
Explain = Callable[[Located], str | None]


def operate_on(
    job_ids: int | Iterable[int],
    using: str | None,
    *steps: Step,
    explain: Explain,
    wakes: bool = False,
    at_last: str = "kept moving on: try again",
) -> OperationResult:
    """Apply the steps, a statement for each table, to the jobs in batches.

    ``explain`` says why the steps left a job alone, or None when they should not have: then it
    moved on between them, and is tried again. ``at_last`` is the reason when that goes on.
    """
    alias = using or get_settings().database
    changed: list[int] = []
    refused: list[Refusal] = []
    for batch in _batches(job_ids, refused):
        _operate_batch(alias, batch, steps, explain, wakes, at_last, changed, refused)
    return OperationResult(tuple(sorted(changed)), tuple(sorted(refused, key=lambda job: job.job_id)))


def _operate_batch(
    alias: str,
    batch: list[int],
    steps: Sequence[Step],
    explain: Explain,
    wakes: bool,
    at_last: str,
    changed: list[int],
    refused: list[Refusal],
) -> None:
    connection = connections[alias]
    waiting = batch
    conflicts: dict[int, str] = {}
    located: dict[int, Located] = {}
    for _ in range(ROUNDS):
        for step in steps:
            with transaction.atomic(using=alias):
                rows, step_conflicts = _run_step(alias, step, waiting)
                if rows and wakes:
                    wake(connection, sorted({queue for _, queue in rows}))
            conflicts.update(step_conflicts)
            changed += (job_id for job_id, _ in rows)
            done = {job_id for job_id, _ in rows} | step_conflicts.keys()
            waiting = [job_id for job_id in waiting if job_id not in done]
            if not waiting:
                break
        located = operate.locate(connection, [*waiting, *conflicts]) if waiting or conflicts else {}
        if not any(job_id in located and explain(located[job_id]) is None for job_id in waiting):
            break
    for job_id in waiting:
        job = located.get(job_id)
        if job is None:
            refused.append(Refusal(job_id, None, "does not exist"))
        else:
            refused.append(Refusal(job_id, JobState(job.state), explain(job) or at_last))
    for job_id, reason in conflicts.items():
        job = located.get(job_id)
        refused.append(Refusal(job_id, JobState(job.state) if job else None, reason))


def _run_step(alias: str, step: Step, job_ids: Sequence[int]) -> tuple[Rows, dict[int, str]]:
    """The rows that the step changed, and the jobs whose unique key is held by another job.

    All at once first; when one job conflicts, one by one, so that it stops no other.
    """
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias):
            return step(connection, job_ids), {}
    except IntegrityError as exc:
        if not _is_unique_conflict(exc):
            raise
    rows: Rows = []
    conflicts: dict[int, str] = {}
    for job_id in job_ids:
        try:
            with transaction.atomic(using=alias):
                rows += step(connection, [job_id])
        except IntegrityError as exc:
            if not _is_unique_conflict(exc):
                raise
            holder_id = operate.key_holder(connection, job_id)
            holder = "another job" if holder_id is None else f"job {holder_id}"
            conflicts[job_id] = f"its unique key is held by {holder}"
    return rows, conflicts


def _is_unique_conflict(exc: IntegrityError) -> bool:
    cause = exc.__cause__
    return (
        isinstance(cause, psycopg.errors.UniqueViolation)
        and cause.diag.constraint_name == "idx_awa_jobs_unique"
    )


def _batches(job_ids: int | Iterable[int], refused: list[Refusal]) -> Iterator[list[int]]:
    """The ids in ascending batches, each once; those that no job can have are refused."""
    given = {_job_id(job_id) for job_id in ([job_ids] if isinstance(job_ids, int) else job_ids)}
    possible = sorted(job_id for job_id in given if 0 < job_id <= LARGEST_ID)
    refused += (Refusal(job_id, None, "does not exist") for job_id in given.difference(possible))
    for start in range(0, len(possible), BATCH):
        yield possible[start : start + BATCH]


def _job_id(given: object) -> int:
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"the id of a job is an integer, not {given!r}") from None
