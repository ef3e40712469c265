"""Arguments that did not come with the claim: read when the attempt begins, with no fault of the job's
in it when that fails."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, OperationalError, connections

from awa_django.jobs import job
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Deferral, Outcome, Release
from awa_django.worker import attempt
from awa_django.worker.attempt import run_attempt, run_attempt_async
from awa_django.worker.verdict import POSTPONED_DELAY
from tests.factories import insert_job

pytestmark = pytest.mark.django_db


class Handled:
    """A ``def`` and an ``async def`` handler that write down what they were given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

        @job(kind="t.large")
        def large(text: str) -> None:
            self.seen.append(text)

        @job(kind="t.large_async")
        async def large_async(text: str) -> None:
            self.seen.append(text)

        self._handlers = {"def": large.handler, "async": large_async.handler}

    def run(self, way: str, job_id: int, **options: Any) -> Outcome | None:
        given = ClaimedJob(job_id, 1, "k", "default", 1, 3, None, None, None)
        handler = self._handlers[way]
        if way == "def":
            return run_attempt(given, handler, worker="w/1", **options)

        async def run() -> Outcome | None:
            try:
                return await run_attempt_async(given, handler, worker="w/1", **options)
            finally:
                await sync_to_async(connections.close_all)()

        return asyncio.run(run())


@pytest.fixture
def handled(registered: None) -> Handled:
    return Handled()


both = pytest.mark.parametrize(
    "way", ["def", pytest.param("async", marks=pytest.mark.django_db(transaction=True))]
)


@both
@pytest.mark.usefixtures("clean_queue")
def test_they_are_read_when_the_attempt_begins(way: str, handled: Handled) -> None:
    job_id = insert_job("running", args={"text": "x" * 50_000})
    assert handled.run(way, job_id) == Completion(Attempt(job_id, 1))
    assert handled.seen == ["x" * 50_000]


@both
@pytest.mark.usefixtures("clean_queue")
def test_a_run_that_is_over_begins_nothing(way: str, handled: Handled) -> None:
    job_id = insert_job("running", run_lease=2, args={"text": "x"})
    assert handled.run(way, job_id) == Release(Attempt(job_id, 1))  # which the rows refuse: stale
    assert handled.seen == []


@both
@pytest.mark.usefixtures("clean_queue")
def test_a_job_does_not_begin_when_reading_them_took_too_long(way: str, handled: Handled) -> None:
    job_id = insert_job("running", args={"text": "x"})
    assert handled.run(way, job_id, begin_by=0.0) == Release(Attempt(job_id, 1))
    assert handled.seen == []


def failing(error: DatabaseError | InterfaceError, cause: psycopg.Error) -> mock._patch[mock.MagicMock]:
    error.__cause__ = cause
    return mock.patch.object(attempt, "claimed_args", side_effect=error)


@pytest.mark.parametrize(
    "way_down",
    [
        (OperationalError("away"), psycopg.OperationalError("connection refused")),
        (OperationalError("restarts"), psycopg.errors.AdminShutdown("terminating connection")),
        (InterfaceError("closed"), psycopg.InterfaceError("connection already closed")),
    ],
)
@pytest.mark.parametrize("way", ["def", "async"])
def test_a_database_that_is_away_costs_the_job_a_wait_and_no_attempt(
    way: str, way_down: tuple[Any, Any], handled: Handled
) -> None:
    with failing(*way_down):
        outcome = handled.run(way, 5)
    assert outcome == Deferral(Attempt(5, 1), JobState.SCHEDULED, POSTPONED_DELAY, refund=True)
    assert handled.seen == []


@pytest.mark.parametrize("way", ["def", "async"])
def test_arguments_that_cannot_be_read_are_a_failure_of_the_attempt(way: str, handled: Handled) -> None:
    """Else a row that the server cannot give out would go round for ever, uncharged."""
    error = psycopg.errors.ProgramLimitExceeded("out of memory: Cannot enlarge string buffer")
    with failing(OperationalError(str(error)), error):
        outcome = handled.run(way, 5)
    assert isinstance(outcome, Deferral)
    assert (outcome.state, outcome.refund) == (JobState.RETRYABLE, False)
    assert outcome.entry is not None
    assert "Cannot enlarge" in outcome.entry
