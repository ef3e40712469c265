"""What was enqueued: look, and assert."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from awa_django import jobs as api
from awa_django import registry
from awa_django.conf import get_settings
from awa_django.models import Job
from awa_django.registry import Handler

# Of the jobs that did not match, a failed assertion names so many.
NAMED_AT_MOST = 20


def enqueued_jobs(
    kind: api.Job[..., Any] | str | None = None, *, queue: str | None = None, state: str | None = None
) -> list[Job]:
    """The jobs there are, oldest first, narrowed by kind (or the ``@job`` itself), queue and state.

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


def assert_enqueued(
    job: api.Job[..., Any] | str,
    args: Mapping[str, object] | None = None,
    *,
    queue: str | None = None,
    run_at: datetime | None = None,
    state: str | None = None,
    count: int | None = 1,
) -> list[Job]:
    """Assert that exactly ``count`` such jobs were enqueued (None: at least one); those jobs.

    ``args`` are all arguments of the job, as its caller gives them; those left out have their
    defaults. For a kind given as text they are compared with the stored JSON.

    Raises:
        AssertionError: naming the jobs of this kind that there are.
    """
    of_kind = enqueued_jobs(job)
    found = _matching(of_kind, job, args, queue=queue, run_at=run_at, state=state)
    if not found if count is None else len(found) != count:
        wanted = "at least 1" if count is None else count
        what = _describe(job, args, queue=queue, run_at=run_at, state=state)
        raise AssertionError(f"{len(found)} jobs enqueued, not {wanted}: {what}\n{_listing(of_kind)}")
    return found


def refute_enqueued(
    job: api.Job[..., Any] | str,
    args: Mapping[str, object] | None = None,
    *,
    queue: str | None = None,
    run_at: datetime | None = None,
    state: str | None = None,
) -> None:
    """Assert that no such job was enqueued. Raises: AssertionError naming those that were."""
    assert_enqueued(job, args, queue=queue, run_at=run_at, state=state, count=0)


def _matching(
    jobs: list[Job],
    job: api.Job[..., Any] | str,
    args: Mapping[str, object] | None,
    *,
    queue: str | None,
    run_at: datetime | None,
    state: str | None,
) -> list[Job]:
    wanted_args = None if args is None else _stored_args(job, args)
    return [
        each
        for each in jobs
        if (queue is None or each.queue == queue)
        and (run_at is None or each.run_at == run_at)
        and (state is None or each.state == state)
        and (wanted_args is None or _with_defaults(job, each.args) == wanted_args)
    ]


def _stored_args(job: api.Job[..., Any] | str, args: Mapping[str, object]) -> dict[str, Any]:
    handler = _handler(job)
    if handler is None or isinstance(job, str):
        return dict(args)
    return handler.key_args(handler.encode(handler.bind((), args)))


def _with_defaults(job: api.Job[..., Any] | str, args: dict[str, Any]) -> dict[str, Any]:
    return args if isinstance(job, str) else job.handler.key_args(json.dumps(args))


def _handler(job: api.Job[..., Any] | str) -> Handler | None:
    return registry.find(job) if isinstance(job, str) else job.handler


def _kinds(job: api.Job[..., Any] | str) -> list[str]:
    handler = _handler(job)
    if handler is None:
        return [str(job)]
    return [handler.kind, *handler.aliases]


def _describe(job: api.Job[..., Any] | str, args: Mapping[str, object] | None, **others: object) -> str:
    kind = job if isinstance(job, str) else job.handler.kind
    given = {"args": None if args is None else dict(args), **others}
    return ", ".join([kind, *(f"{name}={value!r}" for name, value in given.items() if value is not None)])


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
