"""The vitals must be able to fail: what grows is found, and what only comes late is not."""

from __future__ import annotations

import pytest

from tests.soak.vitals import trends_of

STEADY = [24.0] * 100
LATE = [17.0] * 60 + [25.0] * 50
LEAK = [24.0 + sample / 4 for sample in range(100)]


@pytest.mark.parametrize(
    ("children", "flat"),
    [
        ([STEADY, STEADY], [True, True]),
        ([STEADY, LATE], [True, True]),
        ([LATE], [False]),
        ([STEADY, LEAK], [True, False]),
        ([LEAK, LEAK], [False, False]),
    ],
)
def test_child_that_grows_beyond_its_siblings_is_found(children: list[list[float]], flat: list[bool]) -> None:
    series = {f"child {number} descriptors": values for number, values in enumerate(children)}
    series["supervisor descriptors"] = [90.0] * 100  # of another kind
    assert [trend.is_flat for trend in trends_of(series)] == [*flat, True]


def test_few_samples_are_no_trend() -> None:
    assert trends_of({"connections": [1.0] * 20 + [99.0] * 19}) == []
