"""Middleware: what stands round a handler, in which order, and what it may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import MiddlewareNotUsed
from django.db import connection
from django.utils import timezone, translation
from django.utils.decorators import async_only_middleware, sync_and_async_middleware

from awa_django.carry import traceparent
from awa_django.context import JobContext
from awa_django.errors import ConfigurationError
from awa_django.jobs import Job, job
from awa_django.outcomes import Cancel
from awa_django.states import JobState
from awa_django.storage.rows import ClaimedJob, Completion, Ending, Outcome
from awa_django.worker import middleware
from awa_django.worker.attempt import run_attempt, run_attempt_async
from awa_django.worker.middleware import load
from tests.factories import insert_job, reload_job

HERE = "tests.worker.test_middleware."
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
seen: list[object] = []


@pytest.fixture(autouse=True)
def fresh(registered: None) -> Iterator[None]:
    """No chain of an earlier test, and no handler of this one after it."""
    seen.clear()
    middleware._chain.cache_clear()
    yield
    middleware._chain.cache_clear()


@sync_and_async_middleware
def outer(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    seen.append("made")
    if iscoroutinefunction(run):

        async def link_async(context: JobContext) -> object:
            seen.append(f"outer of {context.job_id}")
            try:
                return await run(context)
            finally:
                seen.append("outer is left")

        return link_async

    def link(context: JobContext) -> object:
        seen.append(f"outer of {context.job_id}")
        try:
            return run(context)
        finally:
            seen.append("outer is left")

    return link


class Inner:
    """A class, as many of Django's are; async where its call is."""

    sync_capable = async_capable = True

    def __new__(cls, run: Callable[[JobContext], Any]) -> Any:
        return InnerAsync(run) if iscoroutinefunction(run) else InnerSync(run)


class InnerSync:
    def __init__(self, run: Callable[[JobContext], Any]) -> None:
        self.run = run

    def __call__(self, context: JobContext) -> object:
        seen.append("inner")
        return self.run(context)


class InnerAsync(InnerSync):
    def __init__(self, run: Callable[[JobContext], Any]) -> None:
        super().__init__(run)
        markcoroutinefunction(self)

    async def __call__(self, context: JobContext) -> object:
        seen.append("inner")
        return await self.run(context)


def refuse(run: Callable[[JobContext], Any]) -> Callable[[JobContext], object]:
    return lambda context: Cancel("not on a Sunday")


def forgive(run: Callable[[JobContext], Any]) -> Callable[[JobContext], object]:
    def link(context: JobContext) -> object:
        try:
            return run(context)
        except LookupError:
            return "forgiven"

    return link


def insert_after(run: Callable[[JobContext], Any]) -> Callable[[JobContext], object]:
    def link(context: JobContext) -> object:
        run(context)
        raise ValueError("after the handler")

    return link


def unused(run: Callable[[JobContext], Any]) -> Callable[[JobContext], object]:
    raise MiddlewareNotUsed


def nothing(run: Callable[[JobContext], Any]) -> None:
    return None


@async_only_middleware
def async_only(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    return run


@sync_and_async_middleware
def never_async(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    def link(context: JobContext) -> object:
        return run(context)

    return link


def run(declared: Job[Any, Any], metadata: str | None = None) -> Outcome | None:
    given = ClaimedJob(5, 9, declared.handler.kind, "q", 1, 3, '{"n": 1}', metadata, None)
    if declared.handler.is_async:
        return asyncio.run(run_attempt_async(given, declared.handler, worker="w/1"))
    return run_attempt(given, declared.handler, worker="w/1")


@job(kind="tests.middleware.plain", keep_result=True)
def plain(n: int) -> int:
    seen.append("handler")
    return n


async def _plain(n: int) -> int:
    seen.append("handler")
    return n


@pytest.mark.parametrize("is_async", [False, True])
def test_the_first_of_the_list_is_outermost_and_made_once(settings: Any, is_async: bool) -> None:
    declared: Job[Any, Any] = job(kind="tests.middleware.a", keep_result=True)(_plain) if is_async else plain
    settings.AWA = {"MIDDLEWARE": [HERE + "outer", HERE + "Inner", HERE + "unused"][: 2 if is_async else 3]}
    for _ in range(2):
        outcome = run(declared)
        assert isinstance(outcome, Completion)
        assert outcome.result == "1"
    each = ["outer of 5", "inner", "handler", "outer is left"]
    assert seen == ["made", *each, *each]


def test_without_middleware_nothing_is_made(settings: Any) -> None:
    settings.AWA = {"MIDDLEWARE": []}
    run(plain)
    assert middleware._chain.cache_info().currsize == 0
    assert seen == ["handler"]


def test_it_may_answer_for_the_handler(settings: Any) -> None:
    settings.AWA = {"MIDDLEWARE": [HERE + "outer", HERE + "refuse"]}
    outcome = run(plain)
    assert isinstance(outcome, Ending)
    assert outcome.state == JobState.CANCELLED
    assert "handler" not in seen
    assert "outer is left" in seen


def test_exceptions_go_outwards_until_one_is_caught(settings: Any) -> None:
    @job(kind="tests.middleware.raises", keep_result=True)
    def raises(n: int) -> None:
        raise LookupError(n)

    settings.AWA = {"MIDDLEWARE": [HERE + "forgive", HERE + "outer"]}
    outcome = run(raises)
    assert isinstance(outcome, Completion)
    assert outcome.result == '"forgiven"'
    assert seen[-1] == "outer is left"


def test_context_goes_to_a_handler_that_takes_it_and_to_no_other(settings: Any) -> None:
    @job(kind="tests.middleware.context", takes_context=True)
    def takes(context: JobContext, n: int) -> None:
        seen.append(context.metadata)

    settings.AWA = {"MIDDLEWARE": [HERE + "Inner"]}
    run(takes, '{"k": 1}')
    run(plain)
    assert seen == ["inner", {"k": 1}, "inner", "handler"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_it_is_inside_the_transaction_of_an_atomic_handler(settings: Any) -> None:
    @job(kind="tests.middleware.atomic", atomic=True, retry_on=())
    def writes(n: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO awa.jobs (kind) VALUES ('written')")

    settings.AWA = {"MIDDLEWARE": [HERE + "insert_after"]}
    job_id = insert_job("running", kind="tests.middleware.atomic", worker="w/1")
    given = ClaimedJob(job_id, 1, "tests.middleware.atomic", "default", 1, 3, '{"n": 1}', None, None)
    outcome = run_attempt(given, writes.handler, worker="w/1")
    assert isinstance(outcome, Ending)
    assert reload_job(job_id).state == "running"  # not completed, and nothing is written
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM awa.jobs WHERE kind = 'written'")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize(
    ("path", "is_async", "says"),
    [
        ("nowhere.at_all", False, "cannot import 'nowhere.at_all'"),
        (HERE + "missing", False, "missing"),
        (HERE + "async_only", False, "cannot stand round def handlers"),
        (HERE + "forgive", True, "cannot stand round async def handlers"),
        (HERE + "never_async", True, "must return a coroutine function"),
        (HERE + "nothing", False, "must return a sync function"),
    ],
)
def test_wrong_path_stops_the_start_by_name(settings: Any, path: str, is_async: bool, says: str) -> None:
    if is_async:
        job(kind="tests.middleware.start")(_plain)
    settings.AWA = {"MIDDLEWARE": [path]}
    with pytest.raises(ConfigurationError, match=f"MIDDLEWARE.*{says}"):
        load()


@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_carried_holds_in_middleware_and_handler_and_no_longer(
    settings: Any, is_async: bool
) -> None:
    def note() -> None:
        seen.append((translation.get_language(), timezone.get_current_timezone_name(), traceparent.get()))

    async def note_async(n: int) -> None:
        note()

    def note_sync(n: int) -> None:
        note()

    declared: Job[Any, Any] = job(kind="tests.middleware.carried")(note_async if is_async else note_sync)
    settings.AWA = {"CARRY": ["language", "time_zone", "traceparent"]}
    metadata = {"awa:language": "es", "awa:time_zone": "Europe/Madrid", "traceparent": PARENT}
    run(declared, json.dumps(metadata))
    run(declared)
    default = (translation.get_language(), timezone.get_default_timezone_name(), None)
    assert seen == [("es", "Europe/Madrid", PARENT), default]
    settings.AWA = {"CARRY": []}
    run(declared, json.dumps(metadata))
    assert seen[2] == default


def stumble() -> None:
    raise OSError("no collector")


def say_goodbye() -> None:
    seen.append("goodbye")


refuse.stopping = stumble  # type: ignore[attr-defined]
forgive.stopping = say_goodbye  # type: ignore[attr-defined]


def test_end_of_a_process_is_told_to_each_that_asks_whatever_one_makes_of_it(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AWA = {"MIDDLEWARE": [HERE + "outer", HERE + "refuse", HERE + "forgive"]}
    middleware.stop()
    assert seen == ["goodbye"]
    [record] = caplog.records
    assert "refuse" in record.getMessage()
    assert record.exc_info


def lead(is_leading: Callable[[], bool]) -> None:
    seen.append(is_leading())


def stumble_leading(is_leading: Callable[[], bool]) -> None:
    raise OSError("no collector")


refuse.supervising = stumble_leading  # type: ignore[attr-defined]
forgive.supervising = lead  # type: ignore[attr-defined]


def test_workers_own_process_is_told_to_each_that_asks_whatever_one_makes_of_it(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [HERE + "outer", HERE + "refuse", "tests.nowhere.at_all", HERE + "forgive"]
    settings.AWA = {"MIDDLEWARE": paths}
    middleware.supervise(lambda: True)
    assert seen == [True]
    [record] = caplog.records  # the path that is wrong is said by the children
    assert "refuse" in record.getMessage()
