"""How async jobs are begun: one after the other without a round of the loop, which goes on meanwhile.

Before Python 3.12 their tasks wait for such a round, and a handler may cancel them before their first step:
they are given back then, and their places with them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from awa_django.jobs import job
from awa_django.storage.rows import Completion, Release
from awa_django.worker import loop_runner
from tests.waiting import wait_until
from tests.worker.test_executor import Bench, make_bench

__all__ = ["make_bench"]


def test_jobs_that_wait_for_nothing_follow_each_other_and_let_others_go_on(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_runner, "LONGEST_TURN", 0.0001)
    bench = make_bench(concurrency=2)
    ended_by_turn = [0]

    @job(kind="t.nothing")
    async def nothing(number: int) -> None: ...

    @job(kind="t.other")
    async def other(number: int) -> None:
        while len(bench.outcomes) < count:
            await asyncio.sleep(0)
            ended_by_turn.append(len(bench.outcomes))

    count = 3000  # deeper than Python may call itself
    bench.submit("t.other")
    for _ in range(2):
        bench.submit("t.nothing", count // 2)
    wait_until(lambda: len(bench.outcomes) == count + 1)
    assert {type(outcome) for outcome in bench.outcomes.values()} == {Completion}
    assert max(later - before for before, later in pairwise(ended_by_turn)) < count // 4


def test_handler_that_cancels_all_tasks_takes_no_place_for_ever(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_runner, "_AT_ONCE", {})
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
