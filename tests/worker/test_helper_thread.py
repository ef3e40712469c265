"""Async handlers share one helper thread, and its connections: what one does there harms no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("connected_before", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_transaction_of_an_async_handler_is_ended_when_no_other_runs(
    make_bench: Callable[..., Bench], alone: bool, connected_before: bool
) -> None:
    """All async handlers share one connection: one may have a transaction open while another starts."""

    def before() -> None:
        connection.ensure_connection() if connected_before else connection.close()

    asyncio.run(sync_to_async(before)())
    bench = make_bench()
    is_open: list[bool] = []

    def enter() -> None:
        connection.ensure_connection()
        transaction.atomic().__enter__()

    def look() -> None:
        is_open.append(connection.in_atomic_block)

    @job(kind="t.leave_open")
    async def leave_open(number: int) -> None:
        await sync_to_async(enter)()

    @job(kind="t.look")
    async def look_async(number: int) -> None:
        await sync_to_async(look)()

    @job(kind="t.close")
    async def close(number: int) -> None:
        await sync_to_async(connections.close_all)()

    if not alone:
        bench.submit("t.wait_async")
        wait_until(lambda: bench.running == [1])
    for kind in ("t.leave_open", "t.look"):
        ids = bench.submit(kind)
        wait_until(lambda ids=ids: ids[0] in bench.outcomes)  # type: ignore[misc]
    bench.go.set()
    (last,) = bench.submit("t.close")
    wait_until(lambda: last in bench.outcomes)
    assert is_open == [not alone]
