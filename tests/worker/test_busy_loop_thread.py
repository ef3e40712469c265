"""Async handlers share one helper thread: one that keeps it busy costs others time, never their attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from awa_django.jobs import job
from awa_django.storage.rows import Deferral
from awa_django.worker import attempt
from tests.waiting import wait_until
from tests.worker.test_executor import Bench, make_bench

__all__ = ["make_bench"]


@pytest.fixture
def go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.django_db(transaction=True)
def test_job_that_cannot_begin_is_put_back_uncharged(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, go: threading.Event
) -> None:
    monkeypatch.setattr(attempt, "PREPARE_WITHIN", 0.1, raising=False)
    bench = make_bench()
    begun: list[str] = []

    def keep_busy() -> None:
        connection.ensure_connection()  # from now on the thread's connections are looked after
        begun.append("busy")
        go.wait(100)
        connection.close()

    @job(kind="t.busy")
    async def busy(number: int) -> None:
        await sync_to_async(keep_busy)()

    @job(kind="t.innocent", timeout=0.2)
    async def innocent(number: int) -> None:
        begun.append("innocent")

    bench.submit("t.busy")
    wait_until(lambda: begun == ["busy"])
    (job_id,) = bench.submit("t.innocent")
    wait_until(lambda: job_id in bench.outcomes)
    outcome = bench.outcomes[job_id]
    assert isinstance(outcome, Deferral)
    assert outcome.refund
    assert begun == ["busy"]
    go.set()
    wait_until(lambda: len(bench.outcomes) == 2)
