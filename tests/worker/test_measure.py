"""Measure: what a worker counts is told over all its children, and its loops by name."""

from __future__ import annotations

from awa_django.worker.health import Health, Loop
from awa_django.worker.measure import ENDS, measure
from awa_django.worker.slots import Counter


def lines(*loops: Loop, draining: bool = False) -> set[str]:
    health = Health("w", 50.0, draining, loops, 2)
    return set(measure(health, lambda counter: 100 + counter, 7).splitlines())


def test_each_counter_is_told_by_its_name() -> None:
    found = lines(Loop("claimer of w/1", 1.0, 0.0))
    assert f"awa_worker_claimed_total {100 + Counter.CLAIMED}" in found
    assert f'awa_worker_ended_total{{outcome="stale"}} {100 + Counter.STALE}' in found
    assert f'awa_worker_ended_total{{outcome="unknown_kind"}} {100 + Counter.UNKNOWN_KIND}' in found
    assert {"awa_worker_held 7", "awa_worker_children_ready 2", "awa_worker_uptime_seconds 50.0"} <= found


def test_every_end_that_is_counted_is_told() -> None:
    assert {*ENDS, Counter.CLAIMED} == {counter for counter in Counter if counter < Counter.HELD}


def test_of_the_children_the_slowest_loop_is_told() -> None:
    loops = (Loop("claimer of w/1", 4.0, 0.0), Loop("claimer of w/2", 1.0, 0.0), Loop("leader", 2.5, 5.0))
    found = lines(*loops, Loop("stats", None, 10.0))
    assert 'awa_worker_loop_age_seconds{loop="claimer"} 4.0' in found
    assert 'awa_worker_loop_age_seconds{loop="leader"} 2.5' in found
    assert 'awa_worker_loop_age_seconds{loop="stats"} 50.0' in found


def test_draining_worker_is_not_ready() -> None:
    good = Loop("leader", 0.0, 5.0)
    assert {"awa_worker_ready 1", "awa_worker_draining 0"} <= lines(good)
    assert {"awa_worker_ready 0", "awa_worker_draining 1"} <= lines(good, draining=True)
