"""What was enqueued: look, and assert."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from django.db import connections
from django.test import TestCase

from awa_django import jobs as api
from awa_django import registry
from awa_django.conf import get_settings
from awa_django.handler import Handler
from awa_django.models import Job
from awa_django.storage.operate import highest_id

# Of the jobs that did not match, a failed assertion names so many.
NAMED_AT_MOST = 20


class TaskLike(Protocol):
    """A task of ``django.tasks``, whichever package it is from."""

    @property
    def module_path(self) -> str: ...


AnyKind: TypeAlias = api.Job[..., Any] | TaskLike | str
Args: TypeAlias = Mapping[str, object] | Sequence[object]


def enqueued_jobs(
    kind: AnyKind | None = None, *, queue: str | None = None, state: str | None = None
) -> list[Job]:
    """The jobs there are, oldest first, narrowed by kind (or the job or task itself), queue and state.

    Jobs that ran since are there too: ``state`` says how they ended.
    """
    jobs = Job.objects.using(get_settings().database).order_by("id")
    if kind is not None:
        jobs = jobs.filter(kind__in=_kinds(kind))
    if queue is not None:
        jobs = jobs.filter(queue=queue)
    if state is not None:
        jobs = jobs.filter(state=state)
    return list(jobs)


@contextmanager
def capture_jobs(kind: AnyKind | None = None, *, on_commit: bool = False) -> Iterator[list[Job]]:
    """Collect what is enqueued within the block, oldest first: the list is filled when the block ends.

    ``on_commit`` runs then what ``transaction.on_commit`` was given in the block, which a ``TestCase``
    never commits, and collects what that enqueues too.
    """
    alias = get_settings().database
    connection = connections[alias]
    captured: list[Job] = []
    before = highest_id(connection)
    given_before = len(connection.run_on_commit)
    yield captured
    if on_commit:
        given = connection.run_on_commit[given_before:]
        del connection.run_on_commit[given_before:]
        # Given again as they were (robust or not) for Django to run, with what they give themselves.
        with TestCase.captureOnCommitCallbacks(using=alias, execute=True):
            connection.run_on_commit += given
    captured.extend(each for each in enqueued_jobs(kind) if each.id > before)


def assert_enqueued(
    job: AnyKind,
    args: Args | None = None,
    *,
    queue: str | None = None,
    run_at: datetime | None = None,
    delay: timedelta | float | None = None,
    state: str | None = None,
    count: int | None = 1,
) -> list[Job]:
    """Assert that exactly ``count`` such jobs were enqueued (None: at least one); those jobs.

    ``args`` are all arguments of the job, as its caller gives them: a dict by name, or a list by
    position; those left out have their defaults. For a kind given as text they are compared with the
    stored JSON. ``delay`` (a timedelta or seconds) is how long after its enqueue the job is due.

    Raises:
        AssertionError: naming the jobs of this kind that there are.
    """
    wanted = _Wanted(job, args, queue=queue, run_at=run_at, delay=delay, state=state)
    of_kind = enqueued_jobs(job)
    found = [each for each in of_kind if wanted.fits(each)]
    if not found if count is None else len(found) != count:
        number = "at least 1" if count is None else count
        raise AssertionError(f"{len(found)} jobs enqueued, not {number}: {wanted}\n{_listing(of_kind)}")
    return found


def refute_enqueued(
    job: AnyKind,
    args: Args | None = None,
    *,
    queue: str | None = None,
    run_at: datetime | None = None,
    delay: timedelta | float | None = None,
    state: str | None = None,
) -> None:
    """Assert that no such job was enqueued. Raises: AssertionError naming those that were."""
    assert_enqueued(job, args, queue=queue, run_at=run_at, delay=delay, state=state, count=0)


class _Wanted:
    """What an assertion asks of a job; what is None is not asked."""

    def __init__(
        self, job: AnyKind, args: Args | None, *, delay: timedelta | float | None, **columns: object
    ) -> None:
        self._handler = None if isinstance(job, str) else _handler(job)
        self._given = {
            "args": args,
            "delay": timedelta(seconds=delay) if isinstance(delay, int | float) else delay,
            **columns,
        }
        self._kind = _kinds(job)[0]
        self._args = None if args is None else self._as_stored(args)

    def __str__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self._given.items() if value is not None]
        return ", ".join([self._kind, *given])

    def fits(self, job: Job) -> bool:
        return (
            all(self._given[name] in (None, getattr(job, name)) for name in ("queue", "run_at", "state"))
            and self._given["delay"] in (None, job.run_at - job.created_at)
            and self._args in (None, self._named(job.args))
        )

    def _as_stored(self, args: Args) -> dict[str, Any]:
        if self._handler is None:
            if not isinstance(args, Mapping):
                raise TypeError(f"the arguments of the kind {self._kind!r} must be a dict, not {args!r}")
            return dict(args)
        positional, named = ((), args) if isinstance(args, Mapping) else (args, {})
        return self._handler.key_args(self._handler.encode(self._handler.bind(positional, named)))

    def _named(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored if self._handler is None else self._handler.key_args(json.dumps(stored))


def _handler(job: AnyKind) -> Handler | None:
    """Raises: UnknownJobKind for a task whose backend is another one."""
    if isinstance(job, str):
        return registry.find(job)
    return job.handler if isinstance(job, api.Job) else registry.get(job.module_path)


def _kinds(job: AnyKind) -> list[str]:
    handler = _handler(job)
    if handler is None:
        return [str(job)]
    return [handler.kind, *handler.aliases]


def _listing(jobs: list[Job]) -> str:
    if not jobs:
        return "There is no job of this kind."
    lines = [
        f"  {job.id}: {job.state}, queue {job.queue!r}, run_at {job.run_at.isoformat()}, args {job.args}"
        for job in jobs[:NAMED_AT_MOST]
    ]
    if len(jobs) > NAMED_AT_MOST:
        lines.append(f"  and {len(jobs) - NAMED_AT_MOST} more")
    return "\n".join(["The jobs of this kind:", *lines])
