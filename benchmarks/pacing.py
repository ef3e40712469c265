"""Jobs that come one at a time, to a worker that is idle again. Only the standard library, as for marks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

# Seconds between two jobs.
GAPS = (0.15, 0.3)


def paced(enqueue: Callable[[int], object], count: int) -> list[tuple[int, int, int]]:
    """(number, when it was enqueued, when that was committed) of each job, in nanoseconds since 1970."""
    jobs = []
    for number in range(count):
        time.sleep(random.uniform(*GAPS))
        asked_at = time.time_ns()
        enqueue(number)
        jobs.append((number, asked_at, time.time_ns()))
    return jobs


def latencies(jobs: Sequence[tuple[int, int, int]], started: Mapping[int, int]) -> dict[str, float]:
    """Milliseconds until the handler, from the enqueue's return and from its call."""
    after = [(started[number] - returned) / 1e6 for number, _, returned in jobs]
    whole = [(started[number] - asked) / 1e6 for number, asked, _ in jobs]
    return {
        "p50 ms": percentile(after, 0.5),
        "p99 ms": percentile(after, 0.99),
        "p50 ms with the enqueue": percentile(whole, 0.5),
        "p99 ms with the enqueue": percentile(whole, 0.99),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
