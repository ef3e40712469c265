"""The testing kit's time travel: deferred jobs run when due, and nobody waits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from unittest import mock

import pytest
from django.test import TestCase
from django.utils import timezone

from awa_django import Fixed, JobContext, Snooze, job, registry
from awa_django.testing import drain, enqueued_jobs
from tests.factories import reload_job

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def note(name: str) -> None:
    CALLS.append(name)


def remind(times: int) -> None:
    CALLS.append("remind")
    if times > 1:
        REMIND.using(delay=HOUR).enqueue(times - 1)


def poll(context: JobContext) -> Snooze | None:
    CALLS.append("poll")
    return Snooze(HOUR)


def fail() -> None:
    CALLS.append("fail")
    raise ValueError("no answer")


CALLS: list[str] = []
NOTE = job(kind="time.note")(note)
REMIND = job(kind="time.remind", queue="reminders")(remind)
POLL = job(kind="time.poll", takes_context=True)(poll)
FAIL = job(kind="time.fail", retry=Fixed(wait=HOUR), max_attempts=10)(fail)
JOBS = (NOTE, REMIND, POLL, FAIL)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    CALLS.clear()
    for each in JOBS:
        registry.register(each.handler)
    yield
    for each in JOBS:
        registry.unregister(each.handler)


class DrainUntilTest(TestCase):
    def test_what_is_due_by_then_runs_earliest_first(self) -> None:
        NOTE.using(delay=3 * HOUR).enqueue("third")
        NOTE.using(delay=2 * HOUR).enqueue("second")
        NOTE.enqueue("first")
        NOTE.using(delay=5 * HOUR).enqueue("later")
        assert len(drain(until=4 * HOUR)) == 3
        assert CALLS == ["first", "second", "third"]
        [later] = enqueued_jobs(state="scheduled")
        assert later.args == {"name": "later"}

    def test_an_instant_is_as_good_as_a_duration(self) -> None:
        at = timezone.now() + DAY
        NOTE.using(run_at=at).enqueue("then")
        assert drain(until=at - timedelta(seconds=1)) == []
        assert len(drain(until=at)) == 1

    def test_a_naive_instant_is_refused(self) -> None:
        for until in (datetime(2030, 1, 1), 5):
            with self.assertRaisesMessage(ValueError, "until must be an aware datetime or a timedelta"):
                drain(until=until)  # type: ignore[arg-type]

    def test_a_job_that_polls_runs_as_often_as_the_time_allows(self) -> None:
        job_id = POLL.enqueue().id
        drain(until=timedelta(hours=5, minutes=30))
        assert CALLS == ["poll"] * 6  # now, and after each full hour
        left = reload_job(job_id).run_at - timezone.now()
        assert timedelta(hours=5, minutes=55) < left < timedelta(hours=6, minutes=5)

    def test_retries_wait_from_the_instant_of_the_failure(self) -> None:
        NOTE.using(delay=timedelta(minutes=90)).enqueue("between")
        FAIL.enqueue()
        drain(until=timedelta(hours=2, minutes=30))
        assert CALLS == ["fail", "fail", "between", "fail"]

    def test_jobs_of_handlers_wait_from_now(self) -> None:
        REMIND.enqueue(3)
        assert len(drain("reminders", until=timedelta(minutes=90))) == 3

    def test_other_queues_stay_where_they_are(self) -> None:
        NOTE.using(delay=HOUR).enqueue("default")
        REMIND.using(delay=HOUR).enqueue(1)
        drain("reminders", until=DAY)
        assert CALLS == ["remind"]

    def test_a_moved_clock_makes_jobs_due(self) -> None:
        """As freezegun and time-machine move it."""
        NOTE.using(delay=HOUR).enqueue("later")
        now = timezone.now()
        with mock.patch("django.utils.timezone.now", return_value=now + timedelta(minutes=59)):
            assert drain() == []
        with mock.patch("django.utils.timezone.now", return_value=now + 2 * HOUR):
            assert len(drain()) == 1

    def test_deferral_without_travel_is_left_alone(self) -> None:
        before = timezone.now()
        job_id = FAIL.enqueue().id
        drain()
        at: datetime = reload_job(job_id).run_at
        assert at - before < HOUR + timedelta(minutes=5)
