"""Enqueue one job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections

from awa_django.conf import get_settings
from awa_django.enqueue.around import Enqueuing, hooks, surrounded
from awa_django.enqueue.enqueued import Enqueued
from awa_django.enqueue.inline import run_inline
from awa_django.enqueue.options import Item, Recipe, prepare
from awa_django.enqueue.schema import explain_missing_queue
from awa_django.enqueue.waking import wake_workers
from awa_django.errors import UniqueConflict
from awa_django.states import JobState
from awa_django.storage.insert import (
    Inserted,
    NewJob,
    change_holder,
    database_now,
    find_unique_holders,
    insert_job,
    insert_job_at,
    insert_unique_job,
)
from awa_django.unique import Unique

# How often a key may be found held and its holder gone before this is given up: each time another
# job must have taken the key and ended in between.
MOST_TRIES = 20
# serialization_failure and lock_not_available: how a wait for a rival's key ends under stricter
# isolation, and with the caller's lock_timeout.
_RIVAL_ENDED_WAIT = {"40001", "55P03"}


def enqueue(item: Item) -> Enqueued:
    """Insert the job, in the transaction that is open on the queue's alias.

    Raises: InvalidJob before anything is written; UniqueConflict with ``on_conflict="raise"``, or
    when the wait for a rival ended with the caller's transaction; SchemaMismatch before ``migrate``.
    """
    middleware = get_settings().middleware
    try:
        if not middleware or not hooks(middleware):
            return _enqueue(item)
        enqueuing = Enqueuing(item.handler.kind, item.queue)
        with surrounded(middleware, enqueuing):
            enqueued = _enqueue(item)
            enqueuing.answers = [enqueued]
        return enqueued
    except Exception as exc:
        explain_missing_queue(exc)
        raise


def _enqueue(item: Item) -> Enqueued:
    recipe = prepare(item.handler, item.options)
    job = recipe.make(item.arguments)
    settings = get_settings()
    connection = connections[settings.database]
    if recipe.unique is None:
        inserted = (insert_job if recipe.shape.is_plain else insert_job_at)(connection, job)
    else:
        job = keyed(recipe, job)
        with rival_as_unique_conflict(recipe.shape.kind):
            inserted_or_answer = _insert_unless_held(recipe.unique, job)
        if isinstance(inserted_or_answer, Enqueued):
            if recipe.unique.on_conflict == "raise":
                raise unique_conflict(recipe.shape.kind, inserted_or_answer.id)
            return inserted_or_answer
        inserted = inserted_or_answer
    if inserted.is_awaited:
        wake_workers(connection, [recipe.shape.queue])
    if settings.inline is not None:
        run_inline([inserted.job_id])
    return Enqueued(inserted.job_id)


def keyed(recipe: Recipe, job: NewJob) -> NewJob:
    """The job with its unique key, of the period that the database's clock says where no other does."""
    now = database_now(connections[get_settings().database]) if recipe.needs_now else None
    return recipe.keyed(job, now)


def unique_conflict(kind: str, holder_id: int | None) -> UniqueConflict:
    holder = "another job" if holder_id is None else f"job {holder_id}"
    return UniqueConflict(f"{holder} holds the unique key of this {kind!r} job", holder_id=holder_id)


@contextmanager
def rival_as_unique_conflict(kind: str) -> Iterator[None]:
    """UniqueConflict for the errors that end a wait for a rival; the open transaction is over then."""
    try:
        yield
    except OperationalError as exc:
        if getattr(exc.__cause__, "sqlstate", None) not in _RIVAL_ENDED_WAIT:
            raise
        raise UniqueConflict(
            f"another transaction took the unique key of this {kind!r} job "
            f"and the wait for it ended ({exc}): roll back and try again",
            holder_id=None,
        ) from exc


def _insert_unless_held(unique: Unique, job: NewJob) -> Inserted | Enqueued:
    """The new job, or the answer that names the job that holds its key."""
    connection = connections[get_settings().database]
    for _ in range(MOST_TRIES):
        inserted = insert_unique_job(connection, job)
        if inserted is not None:
            return inserted
        # In a second statement: the first does not see what a rival committed while it waited.
        answer = _answer_of_holder(connection, unique, job)
        if answer is not None:
            return answer
    raise unique_conflict(job.shape.kind, None)


def _answer_of_holder(connection: Any, unique: Unique, job: NewJob) -> Enqueued | None:
    """The holder of the job's key, changed as ``unique`` asks; None when it is gone, or moved on."""
    assert job.unique_key is not None
    if not (unique.replaces_args or unique.reschedules):
        holder_id = find_unique_holders(connection, [job.unique_key]).get(job.unique_key)
        return None if holder_id is None else Enqueued(holder_id, False, holder_id)
    holder = change_holder(
        connection, job, replaces_args=unique.replaces_args, reschedules=unique.reschedules
    )
    if holder is None or holder.has_moved_on:
        return None
    state = None if holder.state is None else JobState(holder.state)
    return Enqueued(holder.job_id, False, holder.job_id, holder.is_changed, state)
