"""Async jobs whose task a handler cancels before its first step: given back, and their places with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from awa_django.jobs import job
from awa_django.storage.rows import Release
from tests.waiting import wait_until
from tests.worker.test_executor import Bench, make_bench

__all__ = ["make_bench"]


def test_handler_that_cancels_all_tasks_takes_no_place_for_ever(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(concurrency=3)
    begun, go_on = threading.Event(), threading.Event()

    @job(kind="t.cancel_all")
    async def cancel_all(number: int) -> None:
        begun.set()
        go_on.wait(60)  # the loop is blocked: what is started meanwhile is spawned in one step
        asyncio.get_running_loop().call_soon(lambda: [task.cancel() for task in asyncio.all_tasks()])
        await asyncio.sleep(60)

    bench.submit("t.cancel_all")
    assert begun.wait(60)
    ids = bench.submit("t.wait_async", 2)
    go_on.set()

    def are_over(count: int) -> bool:
        bench.executor.cancel_marked()
        return len(bench.outcomes) == count

    wait_until(lambda: are_over(3))
    assert [type(bench.outcomes[job_id]) for job_id in ids] == [Release, Release]
    assert bench.started == []
    bench.submit("t.wait_async", 3)
    wait_until(lambda: len(bench.running) == 3)
    bench.let_go(6)
