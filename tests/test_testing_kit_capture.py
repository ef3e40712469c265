"""The testing kit's look at what is enqueued: in a block, by delay, by position."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test import TestCase

from awa_django import InvalidJob, enqueue_many, job, own_transaction, registry
from awa_django.testing import assert_enqueued, capture_jobs, drain, enqueued_jobs, refute_enqueued
from tests.factories import insert_job


def send(order_id: int, to: str = "nobody") -> None: ...


SEND = job(kind="capture.send")(send)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry.register(SEND.handler)
    yield
    registry.unregister(SEND.handler)


class CaptureTest(TestCase):
    def test_only_the_jobs_of_the_block_are_captured(self) -> None:
        SEND.enqueue(1)
        with capture_jobs() as captured:
            SEND.enqueue(2)
            enqueue_many([SEND.using(delay=60).item(3), SEND.item(4)])
            assert captured == []
        SEND.enqueue(5)
        assert [each.args["order_id"] for each in captured] == [2, 3, 4]
        assert [each.state for each in captured] == ["available", "scheduled", "available"]

    def test_captured_jobs_are_narrowed_by_kind(self) -> None:
        with capture_jobs(SEND) as captured:
            SEND.enqueue(1)
            insert_job(kind="other")
        assert [each.kind for each in captured] == ["capture.send"]

    def test_what_is_rolled_back_is_not_captured(self) -> None:
        with capture_jobs() as captured:
            try:
                with transaction.atomic():
                    SEND.enqueue(1)
                    raise LookupError
            except LookupError:
                SEND.enqueue(2)
        assert [each.args["order_id"] for each in captured] == [2]

    def test_on_commit_callbacks_run_when_asked_for(self) -> None:
        with capture_jobs() as captured:
            transaction.on_commit(lambda: SEND.enqueue(1))
        assert captured == []
        with capture_jobs(on_commit=True) as captured, transaction.atomic():
            transaction.on_commit(lambda: transaction.on_commit(lambda: SEND.enqueue(2)))
        assert [each.args["order_id"] for each in captured] == [2]

    def test_a_robust_callback_may_fail_and_stops_no_other(self) -> None:
        with self.assertLogs("django.test", "ERROR"), capture_jobs(on_commit=True) as captured:
            transaction.on_commit(lambda: 1 / 0, robust=True)
            transaction.on_commit(lambda: SEND.enqueue(1))
        assert [each.args["order_id"] for each in captured] == [1]
        with pytest.raises(ZeroDivisionError), capture_jobs(on_commit=True):
            transaction.on_commit(lambda: 1 / 0)

    def test_a_block_that_fails_captures_nothing(self) -> None:
        try:
            with capture_jobs(on_commit=True) as captured:
                transaction.on_commit(lambda: SEND.enqueue(1))
                raise LookupError
        except LookupError:
            assert captured == []
        assert enqueued_jobs() == []


class ArgumentsTest(TestCase):
    def test_arguments_may_be_given_by_position(self) -> None:
        SEND.enqueue(1, "ann")
        assert_enqueued(SEND, [1, "ann"])
        refute_enqueued(SEND, [1])
        with pytest.raises(InvalidJob):
            assert_enqueued(SEND, [1, "ann", "bob"])
        with pytest.raises(TypeError, match="must be a dict"):
            assert_enqueued("no.such_kind", [1])

    def test_delay_is_from_the_enqueue(self) -> None:
        SEND.using(delay=60).enqueue(1)
        SEND.enqueue_many([{"order_id": 2}])
        assert_enqueued(SEND, {"order_id": 1}, delay=60)
        assert_enqueued(SEND, delay=timedelta(minutes=1))
        assert_enqueued(SEND, {"order_id": 2}, delay=0)
        with pytest.raises(AssertionError, match=r"delay=datetime\.timedelta\(seconds=61\)"):
            assert_enqueued(SEND, delay=61)


class OwnTransactionTest(TestCase):
    @pytest.mark.fault(
        "U30", injected="a TestCase, which never commits, and a job that is committed by itself"
    )
    def test_it_stays_in_the_transaction_of_the_test(self) -> None:
        with transaction.atomic(), own_transaction():
            SEND.enqueue(1)
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM awa.jobs WHERE kind = 'capture.send'")
                assert cursor.fetchone() == (0,)
        finally:
            other.close()
        assert [run.outcome for run in drain()] == ["completed"]
