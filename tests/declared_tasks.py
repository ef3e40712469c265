"""Tasks of ``django.tasks`` that tests enqueue, also for real worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import django

from awa_django import Cancel, Fixed, Snooze, TerminalError, Unique
from tests.handlers import effect

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task

AnyContext: TypeAlias = "TaskContext[Any, Any]"
AGAIN = Fixed(wait=0.05)
# Django 6.0's decorator passes no options on; there the same is said with ``using``.
PASSES_OPTIONS = not (6, 0) <= django.VERSION < (6, 1)


@task
def add(left: Any, right: Any = 0) -> Any:
    return left + right


@task()
def give_back(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task(priority=7, queue_name="mail")
def mail(to: str) -> str:
    return f"sent to {to}"


@task
async def add_async(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


@task(takes_context=True)
def tell(context: AnyContext, what: str) -> list[Any]:
    result = context.task_result
    return [context.attempt, result.id, str(result.status), len(result.errors), result.worker_ids, what]


@task(takes_context=True)
async def tell_async(context: AnyContext) -> list[Any]:
    return [context.attempt, context.task_result.id]


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
async def fail_async() -> None:
    raise KeyError("async")


@task
def fail_for_good() -> None:
    raise TerminalError("no use")


@task(takes_context=True)
def fail_once(context: AnyContext) -> int:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return context.attempt


@task
def give_unstorable() -> object:
    return object()


@task
def give_bytes(value: str) -> bytes:
    return value.encode()


@task
def snooze() -> Any:
    return Snooze(3600)


@task
def cancel() -> Any:
    return Cancel("not wanted")


@task(takes_context=True)
def report(context: AnyContext) -> bool:
    job = context.job  # type: ignore[attr-defined]
    job.progress(50, "halfway")
    return bool(job.is_cancelled)


@task
def write(number: int) -> None:
    effect("write", number)


@task(takes_context=True)
def look_at_itself(context: AnyContext) -> list[str]:
    """What a caller would read while it runs."""
    result = look_at_itself.get_result(context.task_result.id)
    return [str(result.status), *result.worker_ids, str(result.started_at is not None)]


@task(queue_name="anything", backend="other")
def elsewhere() -> None: ...


@task(backend="immediate")
def of_another_backend() -> str:
    return "done here"


class Group:
    @staticmethod
    def function() -> None: ...


async def not_declared() -> None: ...


if PASSES_OPTIONS:
    declare: Callable[..., Callable[[Callable[..., object]], Any]] = task  # its stubs do not know of options

    @declare(max_attempts=5, retry=AGAIN, timeout=20, unique=Unique(args=("number",)), tags=["a"])
    def with_options(number: int, other: str = "x") -> int:
        return number

    @declare(takes_context=True, atomic=True)
    def atomically(context: AnyContext, number: int) -> int:
        effect("atomically", number)
        return context.attempt

    @declare(aliases=["shop.old_name"], timeout=timedelta(minutes=1))
    def renamed() -> str:
        return "new"
