"""Enqueue many jobs: ids from the sequence, unique keys by array, rows by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.enqueue.around import Enqueuing, hooks, surrounded
from awa_django.enqueue.enqueued import Enqueued
from awa_django.enqueue.inline import run_inline
from awa_django.enqueue.options import Item, Options, Recipe, prepare
from awa_django.enqueue.schema import explain_missing_queue
from awa_django.enqueue.single import MOST_TRIES, rival_as_unique_conflict, unique_conflict
from awa_django.enqueue.waking import wake_workers
from awa_django.errors import InvalidJob
from awa_django.handler import Handler
from awa_django.storage.copy import copy_jobs, reserve_ids, take_unique_keys
from awa_django.storage.insert import NewJob, find_unique_holders

# Rows per COPY: bounds the memory that a generator of a million items takes, and costs nothing more
# (a COPY of 10,000 rows is within a few per cent of one of 100,000).
CHUNK = 10_000


def enqueue_many(items: Iterable[Item | Mapping[str, object]], *, like: Item | None = None) -> list[Enqueued]:
    """Insert all the jobs or none, in the open transaction or one of their own; the answers in order.

    Kinds, queues and due instants may be mixed. With ``like``, an item may be a dict: the arguments of
    a job of its handler and options. A duplicate of a job in the table, or of an earlier item, is
    answered with the id that holds the key. Unique items are kept in memory until the last one is
    read, so that all batches take their keys in one order and cannot deadlock; the others are written
    10,000 at a time.

    Raises: InvalidJob, naming the place in the batch, also for items that would change the holder of
    their key (``on_conflict="replace"``); UniqueConflict and SchemaMismatch as ``enqueue`` does.
    """
    middleware = get_settings().middleware
    try:
        if not middleware or not hooks(middleware):
            return _enqueue_many(items, like)
        kind, queue = (None, None) if like is None else (like.handler.kind, like.queue)
        enqueuing = Enqueuing(kind, queue, is_batch=True)
        with surrounded(middleware, enqueuing):
            answers = enqueuing.answers = _enqueue_many(items, like)
        return answers
    except Exception as exc:
        explain_missing_queue(exc)
        raise


def _enqueue_many(items: Iterable[Item | Mapping[str, object]], like: Item | None) -> list[Enqueued]:
    settings = get_settings()
    alias = settings.database
    connection = connections[alias]
    answers: list[Enqueued] = []
    queues: set[str] = set()
    unique: list[tuple[int, NewJob, Recipe]] = []
    with transaction.atomic(using=alias):
        for chunk in _chunks(items, like):
            now, ids = reserve_ids(connection, len(chunk))
            plain: list[tuple[int, NewJob]] = []
            for job_id, (recipe, job) in zip(ids, chunk, strict=True):
                if recipe.unique is None:
                    plain.append((job_id, job))
                else:
                    try:
                        unique.append((len(answers), recipe.keyed(job, now), recipe))
                    except InvalidJob as exc:
                        raise _misplaced(len(answers), exc) from exc
                answers.append(Enqueued(job_id))
            queues |= copy_jobs(connection, plain, now=now)
        if unique:
            queues |= _enqueue_unique(connection, unique, answers, now)
        if queues:
            wake_workers(connection, sorted(queues))
    if settings.inline is not None:
        run_inline([answer.id for answer in answers if answer.created])
    return answers


def _enqueue_unique(
    connection: Any,
    unique: list[tuple[int, NewJob, Recipe]],
    answers: list[Enqueued],
    now: datetime,
) -> set[str]:
    """Take the keys and copy the jobs that got theirs; the answers of the others name the holder."""
    first: dict[bytes, int] = {}  # key -> place of the first item that wants it
    for place, job, _ in unique:
        assert job.unique_key is not None
        first.setdefault(job.unique_key, place)
    with rival_as_unique_conflict(unique[0][1].shape.kind):
        holders = _take_keys(connection, {key: answers[place].id for key, place in first.items()})
    created: list[tuple[int, NewJob]] = []
    for place, job, recipe in unique:
        assert job.unique_key is not None
        holder_id, job_id = holders[job.unique_key], answers[place].id
        if holder_id == job_id:
            created.append((job_id, job))
            continue
        if recipe.unique is not None and recipe.unique.on_conflict == "raise":
            raise unique_conflict(job.shape.kind, holder_id)
        answers[place] = Enqueued(holder_id, False, holder_id)
    queues: set[str] = set()
    for start in range(0, len(created), CHUNK):
        queues |= copy_jobs(connection, created[start : start + CHUNK], now=now)
    return queues


def _take_keys(connection: Any, wanted: dict[bytes, int]) -> dict[bytes, int]:
    """Take each key for its job id where it is free; who holds each key now."""
    holders: dict[bytes, int] = {}
    for _ in range(MOST_TRIES):
        pairs = sorted((key, job_id) for key, job_id in wanted.items() if key not in holders)
        for start in range(0, len(pairs), CHUNK):
            some = pairs[start : start + CHUNK]
            taken = take_unique_keys(connection, some)
            holders.update((key, job_id) for key, job_id in some if job_id in taken)
            held = [key for key, job_id in some if job_id not in taken]
            if held:
                # In a second statement, which sees what rivals committed while the first waited.
                holders.update(find_unique_holders(connection, held))
        if len(holders) == len(wanted):
            return holders
    raise unique_conflict("unique", None)


def _chunks(items: Iterable[object], like: Item | None) -> Iterator[list[tuple[Recipe, NewJob]]]:
    """The jobs, 10,000 at a time: none is read during a COPY, as they may come over the same connection."""
    numbered = enumerate(items)
    while chunk := list(_made(islice(numbered, CHUNK), like)):
        yield chunk


def _made(numbered: Iterable[tuple[int, object]], like: Item | None) -> Iterator[tuple[Recipe, NewJob]]:
    """The jobs that the items ask for; a dict has the arguments of one like ``like``."""
    recipes: dict[int, Recipe] = {}  # by the identity of the options, which they keep
    for place, item in numbered:
        try:
            if isinstance(item, Item):
                handler, options, arguments = item.handler, item.options, item.arguments
            elif like is not None and isinstance(item, Mapping):
                handler, options, arguments = like.handler, like.options, like.handler.bind((), item)
            else:
                wanted = "job.item(...)" if like is None else "a dict or job.item(...)"
                raise InvalidJob(f"expected {wanted}, not {item!r}")
            recipe = recipes.get(id(options))
            if recipe is None or recipe.handler is not handler:
                recipe = recipes[id(options)] = _prepare(handler, options)
            made = recipe, recipe.make(arguments)
        except InvalidJob as exc:
            raise _misplaced(place, exc) from exc
        yield made


def _prepare(handler: Handler, options: Options) -> Recipe:
    recipe = prepare(handler, options)
    if recipe.unique is not None and (recipe.unique.replaces_args or recipe.unique.reschedules):
        raise InvalidJob(
            f"on_conflict={recipe.unique.on_conflict!r} of {handler.kind!r} changes one holder at a time: "
            "enqueue one by one, or for the batch .using(unique=...) with on_conflict='skip'"
        )
    return recipe


def _misplaced(place: int, exc: InvalidJob) -> InvalidJob:
    return InvalidJob(f"item {place} of the batch: {exc}")
