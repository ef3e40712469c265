"""Histogram: what belongs in which bucket, and percentiles near the truth."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from awa_django.histogram import BOUNDS, bucket, percentile


def counted(seconds: Sequence[float]) -> list[int]:
    counts = [0] * (len(BOUNDS) + 1)
    for each in seconds:
        counts[bucket(each)] += 1
    return counts


def test_bounds_double_from_a_millisecond_to_over_an_hour() -> None:
    assert BOUNDS[0] == 0.001
    assert BOUNDS[10] == 1.024
    assert BOUNDS[-2] < 3600 < BOUNDS[-1]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-5, 0), (0, 0), (0.0009, 0), (0.001, 1), (1.0, 10), (1.024, 11), (1e9, 23)]
)
def test_bucket_begins_with_its_lower_bound(seconds: float, expected: int) -> None:
    assert bucket(seconds) == expected


@pytest.mark.parametrize("nothing", [None, [], [0, 0, 0]])
def test_percentile_of_nothing_is_not_known(nothing: list[int] | None) -> None:
    assert percentile(nothing, 0.5) is None


def test_percentile_is_interpolated_within_its_bucket() -> None:
    assert percentile([0, 10], 0.5) == pytest.approx(0.0015)
    assert percentile([10, 0, 10], 0.5) == pytest.approx(0.001)
    assert percentile([10, 0, 10], 0.75) == pytest.approx(0.003)
    assert percentile([4], 1.0) == pytest.approx(0.001)


def test_percentile_of_a_quantile_of_zero_is_where_the_counts_begin() -> None:
    assert percentile([0, 0, 3], 0.0) == pytest.approx(0.002)


def test_percentile_beyond_the_last_bound_is_that_bound() -> None:
    assert percentile(counted([1e6, 1e7]), 0.5) == BOUNDS[-1]


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.95, 0.99])
def test_percentile_is_within_a_factor_of_two_of_the_truth(quantile: float) -> None:
    chance = random.Random(7)
    seconds = sorted(chance.lognormvariate(-2, 1.5) for _ in range(10_000))
    truth = seconds[int(quantile * len(seconds))]
    found = percentile(counted(seconds), quantile)
    assert found is not None
    assert truth / 2 <= found <= truth * 2
    assert found == pytest.approx(truth, rel=0.1)
