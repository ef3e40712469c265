"""The testing kit's inline mode: a job runs where it is enqueued, through the table all the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings

from awa_django import InvalidJob, Unique, job, registry
from awa_django.conf import get_settings
from awa_django.errors import ConfigurationError
from awa_django.operations import pause_queue
from awa_django.testing import drain, enqueued_jobs, inline
from tests.factories import reload_job

ran: list[Any] = []


def note(what: str) -> str:
    ran.append(what)
    return what


def at(instant: datetime) -> None:
    ran.append(instant)


def plain(value: Any) -> None:
    ran.append(value)


def parent(children: int) -> None:
    CHILD.enqueue_many([{"number": number} for number in range(children)])
    NOTE.enqueue("last")
    ran.append("parent")


def child(number: int) -> None:
    ran.append(number)


def endless() -> None:
    ENDLESS.enqueue()


def fail() -> None:
    Group.objects.create(name="stays, as in a worker")
    raise ValueError("not today")


async def note_async(what: str) -> None:
    await Group.objects.acreate(name=what)
    await NOTE.aenqueue(what)
    ran.append("async")


NOTE = job(kind="inline.note", keep_result=True)(note)
ONCE = job(kind="inline.once", unique=Unique(args=True, states="unfinished_or_completed"))(note)
AT = job(kind="inline.at")(at)
PLAIN = job(kind="inline.plain")(plain)
PARENT = job(kind="inline.parent")(parent)
CHILD = job(kind="inline.child")(child)
ENDLESS = job(kind="inline.endless")(endless)
FAIL = job(kind="inline.fail")(fail)
ASYNC = job(kind="inline.async")(note_async)
JOBS = (NOTE, ONCE, AT, PLAIN, PARENT, CHILD, ENDLESS, FAIL, ASYNC)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ran.clear()
    for each in JOBS:
        registry.register(each.handler)
    yield
    for each in JOBS:
        registry.unregister(each.handler)


class InlineTest(TestCase):
    def test_a_job_has_run_when_its_enqueue_returns(self) -> None:
        with inline() as runs:
            enqueued = NOTE.enqueue("now")
            assert ran == ["now"]
            assert [(run.id, run.outcome) for run in runs] == [(enqueued.id, "completed")]
        assert NOTE.get(enqueued.id).result == "now"
        NOTE.enqueue("later")
        assert ran == ["now"]

    @pytest.mark.fault("U38", injected="inline: a tuple as a key, and arguments of another type")
    def test_arguments_are_encoded_and_decoded(self) -> None:
        with inline():
            with pytest.raises(InvalidJob, match="JSON has only strings as keys"):
                PLAIN.enqueue({(1, 2): "tuple"})
            with pytest.raises(InvalidJob, match="argument 'instant'"):
                AT.enqueue("tomorrow")  # type: ignore[arg-type]
            assert enqueued_jobs() == []
            PLAIN.enqueue((1, 2))
            AT.enqueue(datetime(2026, 1, 1))
        assert ran == [[1, 2], datetime(2026, 1, 1)]

    def test_jobs_of_a_handler_run_after_it_in_order(self) -> None:
        with inline() as runs:
            PARENT.enqueue(2)
        assert ran == ["parent", 0, 1, "last"]
        assert len(runs) == 4

    def test_a_job_for_later_waits(self) -> None:
        with inline() as runs:
            NOTE.using(delay=60).enqueue("later")
        assert runs == []
        assert len(drain(until=timedelta(minutes=2))) == 1

    def test_a_duplicate_does_not_run(self) -> None:
        ONCE.enqueue("before")
        with inline():
            ONCE.enqueue_many([{"what": "before"}])
            assert ONCE.enqueue("once").created
            assert not ONCE.enqueue("once").created
            ONCE.enqueue_many([{"what": "once"}])
        assert ran == ["once"]

    def test_a_paused_queue_waits(self) -> None:
        pause_queue("default")
        with inline() as runs:
            NOTE.enqueue("paused")
        assert (runs, ran) == ([], [])

    def test_a_failure_is_the_jobs_own(self) -> None:
        with inline() as runs:
            job_id = FAIL.enqueue().id
        [run] = runs
        assert (run.outcome, run.error) == ("retried", "not today")
        assert reload_job(job_id).state == "retryable"
        assert Group.objects.count() == 1

    def test_endless_jobs_are_stopped(self) -> None:
        few = mock.patch("awa_django.testing.inlining.MOST_JOBS", 10)
        with inline(), few, pytest.raises(AssertionError, match="10 jobs have run and there are more"):
            ENDLESS.enqueue()
        with inline():
            NOTE.enqueue("works again")
        assert ran == ["works again"]

    def test_async_handlers_and_async_callers(self) -> None:
        with inline():
            ASYNC.enqueue("one")
            async_to_sync(ASYNC.aenqueue)("two")
        assert ran == ["async", "one", "async", "two"]
        assert Group.objects.count() == 2

    def test_the_setting_does_without_the_block(self) -> None:
        with override_settings(AWA={"INLINE": "enqueue"}):
            NOTE.enqueue("by the setting")
        assert ran == ["by the setting"]

    def test_another_setting_is_refused(self) -> None:
        with override_settings(AWA={"INLINE": True}), pytest.raises(ConfigurationError, match="INLINE"):
            get_settings()

    def test_commit_is_the_end_of_the_block(self) -> None:
        with inline("commit") as runs:
            with transaction.atomic():
                PARENT.enqueue(1)
            transaction.on_commit(lambda: ran.append("a hook"))
            assert ran == []
        assert ran == ["parent", "a hook", 0, "last"]
        assert len(runs) == 3

    def test_what_is_rolled_back_does_not_run_at_commit(self) -> None:
        try:
            with inline("commit") as runs, transaction.atomic():
                NOTE.enqueue("gone")
                raise LookupError
        except LookupError:
            assert (runs, ran) == ([], [])


class AsyncTest(TestCase):
    async def test_everything_works_from_an_async_test(self) -> None:
        await ASYNC.aenqueue("drained")
        runs = await sync_to_async(drain)()
        assert [run.outcome for run in runs] == ["completed", "completed"]
        with inline():
            await ASYNC.aenqueue("inline")
        assert ran == ["async", "drained", "async", "inline"]
        assert await Group.objects.acount() == 2


class InlineAtCommitTest(TransactionTestCase):
    def test_it_runs_when_the_transaction_commits(self) -> None:
        with override_settings(AWA={"INLINE": "commit"}):
            with transaction.atomic():
                NOTE.enqueue("committed")
                assert ran == []
            assert ran == ["committed"]
            NOTE.enqueue("without a transaction")
            CHILD.enqueue_many([{"number": 1}])
        assert ran == ["committed", "without a transaction", 1]

    def test_a_rollback_leaves_nothing_to_run(self) -> None:
        try:
            with inline(), transaction.atomic():
                NOTE.enqueue("at once")
                raise LookupError
        except LookupError:
            assert ran == ["at once"]
        assert enqueued_jobs() == []
