"""How many jobs are held ahead of those that run: as many as will begin soon, by what was seen of late."""

from __future__ import annotations

import time
from collections.abc import Callable

from awa_django.worker import executor as module
from tests.waiting import wait_until
from tests.worker.test_executor import Bench, make_bench

__all__ = ["make_bench"]


def test_prefetch_follows_the_handlers_speed(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    assert bench.executor.prefetch(1000) == 0
    bench.go.set()

    def prefetch_after_more() -> int:
        """What it is a hundred jobs later: one pause of the machine is forgotten by then."""
        count = len(bench.outcomes) + 100
        bench.submit("t.wait", 100)
        wait_until(lambda: len(bench.outcomes) == count)
        bench.holdings.give_back(bench.holdings.jobs())
        return bench.executor.prefetch(1000)

    wait_until(lambda: prefetch_after_more() > 80)
    assert bench.executor.prefetch(10) == 10


def test_prefetch_ends_while_nothing_does(make_bench: Callable[..., Bench]) -> None:
    """They were held behind slow jobs for 2 s, given back, and taken again, while others had room."""
    bench = make_bench()
    bench.submit("t.wait", 8)
    wait_until(lambda: len(bench.running) == 8)
    bench.executor._mean_seconds = 0.001  # those before them were quick
    bench.executor._moved_at = time.monotonic()
    assert bench.executor.prefetch(1000) > 0
    bench.executor._moved_at -= 1.0
    assert bench.executor.prefetch(1000) == 0
    bench.let_go(8)
    bench.executor._mean_seconds = 0.001
    wait_until(lambda: bench.executor.prefetch(1000) > 0)


def test_less_is_held_ahead_for_a_while_when_some_of_it_had_to_be_given_back(
    make_bench: Callable[..., Bench],
) -> None:
    """Quick jobs, and every now and then a slow one in each slot: thousands were claimed and given back."""
    bench = make_bench(concurrency=1)
    bench.submit("t.wait", 3)
    wait_until(lambda: len(bench.running) == 1)
    bench.executor._mean_seconds = 0.00001
    bench.executor._moved_at = time.monotonic() + 60.0
    assert bench.executor.prefetch(4000) == 4000
    assert bench.executor.release_unstarted(held_before=0.0) == 0
    assert bench.executor.prefetch(4000) == 4000
    assert bench.executor.release_unstarted(held_before=time.monotonic()) == 2
    assert bench.executor.prefetch(4000) == module.MODEST_PREFETCH
    assert bench.executor.prefetch(10) == 10
    bench.executor._modest_until = time.monotonic()
    assert bench.executor.prefetch(4000) == 4000
    bench.let_go(3)
