"""Enqueue one job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from django.db import OperationalError, connections

from awa_django.conf import get_settings
from awa_django.enqueue.inline import run_inline
from awa_django.enqueue.options import Item, Recipe, prepare
from awa_django.enqueue.waking import wake_workers
from awa_django.errors import UniqueConflict
from awa_django.storage.insert import (
    Inserted,
    NewJob,
    database_now,
    find_unique_holders,
    insert_job,
    insert_job_at,
    insert_unique_job,
)

# How often a key may be found held and its holder gone before this is given up: each time another
# job must have taken the key and ended in between.
MOST_TRIES = 20
# serialization_failure and lock_not_available: how a wait for a rival's key ends under stricter
# isolation, and with the caller's lock_timeout.
_RIVAL_ENDED_WAIT = {"40001", "55P03"}


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: ``id`` is the new job's, or that of the job that holds the unique key.

    ``holder_id`` is None when a job was ``created``.
    """

    id: int
    created: bool = True
    holder_id: int | None = None


def enqueue(item: Item) -> Enqueued:
    """Insert the job, in the transaction that is open on the queue's alias.

    Raises: InvalidJob before anything is written; UniqueConflict with ``on_conflict="raise"``, or
    when the wait for a rival ended with the caller's transaction.
    """
    recipe = prepare(item.handler, item.options)
    job = recipe.make(item.arguments)
    settings = get_settings()
    connection = connections[settings.database]
    if recipe.unique is None:
        inserted = (insert_job if recipe.shape.is_plain else insert_job_at)(connection, job)
    else:
        job = _keyed(recipe, job)
        with rival_as_unique_conflict(recipe.shape.kind):
            inserted_or_holder = _insert_unless_held(job)
        if isinstance(inserted_or_holder, int):
            if recipe.unique.on_conflict == "raise":
                raise unique_conflict(recipe.shape.kind, inserted_or_holder)
            return Enqueued(inserted_or_holder, False, inserted_or_holder)
        inserted = inserted_or_holder
    if inserted.is_awaited:
        wake_workers(connection, [recipe.shape.queue])
    if settings.inline is not None:
        run_inline([inserted.job_id])
    return Enqueued(inserted.job_id)


def find_holder(item: Item) -> int | None:
    """The id of the job that holds the unique key which the item would take; None when it is free.

    Raises: InvalidJob when the item is refused, or is not unique.
    """
    recipe = prepare(item.handler, item.options)
    if recipe.unique is None:
        raise ValueError(f"{recipe.shape.kind!r} is not unique, so none of its jobs holds a key")
    key = _keyed(recipe, recipe.make(item.arguments)).unique_key
    assert key is not None
    return find_unique_holders(connections[get_settings().database], [key]).get(key)


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


def _keyed(recipe: Recipe, job: NewJob) -> NewJob:
    now = database_now(connections[get_settings().database]) if recipe.needs_now else None
    return recipe.keyed(job, now)


def _insert_unless_held(job: NewJob) -> Inserted | int:
    """The new job, or the id of the job that holds its key."""
    connection = connections[get_settings().database]
    assert job.unique_key is not None
    for _ in range(MOST_TRIES):
        inserted = insert_unique_job(connection, job)
        if inserted is not None:
            return inserted
        # In a second statement: the first does not see what a rival committed while it waited.
        holder_id = find_unique_holders(connection, [job.unique_key]).get(job.unique_key)
        if holder_id is not None:
            return holder_id
    raise unique_conflict(job.shape.kind, None)
