"""What a type checker says of a call, and what happens to who does not ask one.

Each wrong call bears the error that mypy has for it: mypy is strict here, so an ignore that it does not
need is an error too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import assert_type

import pytest
from django.test import TestCase

from awa_django import Enqueued, InvalidJob, JobContext, JobSnapshot, job, registry
from awa_django.testing import enqueued_jobs
from tests.conftest import PROJECT_DIR


@job(kind="mypy.send", keep_result=True)
def send(order_id: int, to: str = "nobody") -> str:
    return f"{order_id} to {to}"


@job(kind="mypy.report", takes_context=True)
def report(context: JobContext, day: str) -> None: ...


@job
async def fetch(url: str) -> bytes:
    return url.encode()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Another test may have emptied the registry."""
    for each in (send, report, fetch):
        registry.register(each.handler)
    yield
    for each in (send, report, fetch):
        registry.unregister(each.handler)


class RightCallsTest(TestCase):
    def test_the_signature_is_that_of_the_function(self) -> None:
        assert_type(send(1, to="ann"), str)
        assert_type(send.enqueue(1), Enqueued)
        assert_type(send.using(delay=60, priority=1).enqueue(order_id=1, to="ann"), Enqueued)
        assert_type(send.enqueue_many([{"order_id": 1}, send.item(2)]), list[Enqueued])
        assert_type(send.get(send.enqueue(1).id), JobSnapshot)

    def test_the_context_is_no_argument_of_an_enqueue(self) -> None:
        assert_type(report.enqueue("monday"), Enqueued)
        assert_type(report.using(queue="slow").enqueue(day="monday"), Enqueued)

    def test_an_async_job_is_enqueued_alike(self) -> None:
        assert_type(fetch.enqueue(url="https://example.org"), Enqueued)


class WrongCallsTest(TestCase):
    def tearDown(self) -> None:
        assert enqueued_jobs() == []

    def test_arguments_that_are_missing_unknown_or_too_many(self) -> None:
        with pytest.raises(InvalidJob, match="missing a required argument: 'order_id'"):
            send.enqueue()  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="'order'"):
            send.enqueue(1, order=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="too many positional arguments"):
            send.enqueue(1, "ann", 3)  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="too many positional arguments"):
            report.enqueue("monday", "tuesday")  # type: ignore[call-arg]

    def test_arguments_of_another_type(self) -> None:
        with pytest.raises(InvalidJob, match="argument 'order_id'"):
            send.enqueue("1")  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="argument 'to'"):
            send.using(delay=60).enqueue(1, to=None)  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="argument 'day'"):
            report.using(queue="slow").enqueue(day=1)  # type: ignore[arg-type]

    def test_options_are_no_arguments(self) -> None:
        with pytest.raises(InvalidJob, match="'delay'"):
            send.enqueue(1, delay=60)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="order_id"):
            send.using(order_id=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="priority"):
            send.using(priority="high")  # type: ignore[arg-type]

    def test_a_declaration_with_an_option_that_is_not(self) -> None:
        with pytest.raises(TypeError, match="retries"):
            job(retries=3)(print)  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_agrees() -> None:
    command = [sys.executable, "-m", "mypy", "--no-incremental", __file__]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
