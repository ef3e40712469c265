"""What a handler sets for itself (language, time zone, context variables) ends with it."""

from __future__ import annotations

import asyncio
import decimal
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction
from django.core.cache import caches
from django.utils import timezone, translation

from awa_django.codec import JSON
from awa_django.jobs import job
from awa_django.jobs.job import Job
from awa_django.storage.rows import ClaimedJob, Completion, Deferral, Outcome
from awa_django.testing import drain, inline
from awa_django.worker.attempt import run_attempt, run_attempt_async
from tests.worker.test_executor import Bench, make_bench

__all__ = ["make_bench"]

pytestmark = pytest.mark.usefixtures("registered")

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def leave_marks() -> None:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    tenant.set("acme")
    decimal.setcontext(decimal.Context(prec=3))


def marks() -> list[JSON]:
    zone = timezone.get_current_timezone_name()
    return [translation.get_language(), zone, tenant.get(), decimal.getcontext().prec]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_handler_sets_is_not_there_for_the_next_one(
    make_bench: Callable[..., Bench], is_async: bool
) -> None:
    bench = make_bench(concurrency=1, threads=1)
    seen: list[list[JSON]] = []

    def mark(number: int) -> None:
        seen.append(marks())
        leave_marks()

    async def mark_async(number: int) -> None:
        mark(number)

    job(kind="t.mark")(mark_async if is_async else mark)
    bench.submit("t.mark", 3)
    bench.let_go(3)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][2] == "nobody"


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_handler_sets_is_not_there_for_who_runs_it_inline(is_async: bool) -> None:
    def mark() -> None:
        leave_marks()

    async def mark_async() -> None:
        leave_marks()

    before = marks()
    declared = job(kind="t.mark")(mark_async if is_async else mark)
    with inline():
        declared.enqueue()
    declared.enqueue()
    assert [run.outcome for run in drain()] == ["completed"]
    assert marks() == before


def test_jobs_of_a_thread_share_its_caches(make_bench: Callable[..., Bench]) -> None:
    """One that each job made for itself would connect to its server for each job."""
    bench = make_bench(concurrency=1, threads=1)
    seen: list[object] = []

    @job(kind="t.cache")
    def cache(number: int) -> None:
        seen.append(caches["default"])

    bench.submit("t.cache", 2)
    bench.let_go(2)
    assert seen[0] is seen[1]


def hiding(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not show what it wraps."""

    @wraps(function)
    def wrapper(*args: object, **kwargs: object) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def work() -> None:
    raise AssertionError("nobody runs this")


def walk() -> Iterator[int]:
    yield 1


async def walk_async() -> Any:
    yield 1


def ran(declared: Job[Any, Any]) -> Outcome | None:
    claimed = ClaimedJob(
        id=5, run_lease=9, kind="k", queue="q", attempt=1, max_attempts=3, args="{}",
        metadata=None, progress=None,
    )  # fmt: skip
    if declared.handler.is_async:
        return asyncio.run(run_attempt_async(claimed, declared.handler, worker="w/1"))
    return run_attempt(claimed, declared.handler, worker="w/1")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [work, walk, walk_async])
def test_handler_of_which_nothing_ran_has_not_completed(function: Callable[..., Any]) -> None:
    """Its decorator hides from ``@job`` that it is to be awaited, or to be walked through."""
    outcome = ran(job(kind="t.hidden")(hiding(function)))
    assert isinstance(outcome, Deferral)
    assert outcome.entry is not None
    assert "TypeError" in outcome.entry
    assert f"({function.__qualname__})" in outcome.entry


@pytest.mark.filterwarnings("error")
def test_async_handler_that_returns_what_it_should_await_has_not_completed() -> None:
    @job(kind="t.forgot")
    async def forgot() -> object:
        return work()

    assert isinstance(ran(forgot), Deferral)


def test_decorator_that_shows_what_it_wraps_is_fine() -> None:
    async def shown() -> None:
        pass

    assert isinstance(ran(job(kind="t.shown")(markcoroutinefunction(hiding(shown)))), Completion)
