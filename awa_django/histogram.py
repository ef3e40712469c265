"""Histogram: how often something took how long, in buckets of fixed bounds. No database here.

A histogram is a list of counts: the first is of what took less than ``BOUNDS[0]``, each next one of what
took from one bound up to the next, the last of what took longer than all. Buckets at the end that count
nothing may be left out, and ``None`` (of before histograms were kept) counts nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

# Seconds: 1 ms, 2 ms, ... 1.024 s, ... 70 minutes. Stored counts refer to them: bounds may be added at
# the end only. A factor of two bounds a percentile's error, and a row of counts is 120 bytes at most.
BOUNDS: tuple[float, ...] = tuple(0.001 * 2**power for power in range(23))


def bucket(seconds: float) -> int:
    """The place in a histogram of what took so long; a bound belongs to the bucket that it begins."""
    return bisect_right(BOUNDS, seconds)


def percentile(counts: Sequence[int] | None, quantile: float) -> float | None:
    """The seconds that a share of all took less than: 0.5 is the median; None when nothing was counted.

    Within a bucket it is interpolated as if the times were spread evenly (as Prometheus does), so it may
    be out by the width of that bucket. Beyond the last bound it is the last bound.
    """
    counts = counts or ()
    rank = quantile * sum(counts)
    seen = 0
    for place, count in enumerate(counts):
        if count and seen + count >= rank:
            if place == len(BOUNDS):
                return BOUNDS[-1]
            low = BOUNDS[place - 1] if place else 0.0
            return low + (BOUNDS[place] - low) * (rank - seen) / count
        seen += count
    return None
