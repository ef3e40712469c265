from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from awa_django.durations import as_duration


@pytest.mark.parametrize("value", [timedelta(seconds=90), 90, 90.0])
def test_duration_is_a_timedelta_or_seconds(value: Any) -> None:
    assert as_duration(value, "x") == timedelta(seconds=90)


@pytest.mark.parametrize(
    "value", [True, "90", None, -1, float("nan"), float("inf"), 10**400, timedelta(days=-1), timedelta.max]
)
def test_duration_refuses_what_is_none_and_names_it(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^delay must be"):
        as_duration(value, "delay")


def test_duration_refuses_what_is_outside_its_bounds() -> None:
    assert as_duration(1, "x", least=timedelta(seconds=1)) == timedelta(seconds=1)
    with pytest.raises(ValueError, match="between"):
        as_duration(0.5, "x", least=timedelta(seconds=1))
    with pytest.raises(ValueError, match="between"):
        as_duration(timedelta(days=2), "x", most=timedelta(days=1))
