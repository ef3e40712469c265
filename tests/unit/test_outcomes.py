from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from awa_django import Cancel, RetryAfter, Snooze


def test_delay_may_be_seconds() -> None:
    assert Snooze(1.5).delay == timedelta(seconds=1.5)
    assert RetryAfter(timedelta(minutes=1), "busy") == RetryAfter(60, "busy")
    assert Snooze(0).delay == timedelta(0)


@pytest.mark.parametrize("outcome", [Snooze, RetryAfter])
@pytest.mark.parametrize("delay", [-1, float("nan"), "5", None, timedelta(days=366)])
def test_delay_outside_a_year_is_refused(outcome: Any, delay: object) -> None:
    with pytest.raises(ValueError, match=f"{outcome.__name__}.delay"):
        outcome(delay)


def test_reason_is_text_whatever_is_passed() -> None:
    error: Any = ValueError("busy")
    assert RetryAfter(1, error).reason == Cancel(error).reason == "busy"
    assert RetryAfter(1).reason == Cancel().reason == ""


def test_outcomes_are_frozen_values() -> None:
    assert {Cancel("gone"), Cancel("gone")} == {Cancel("gone")}
    with pytest.raises(AttributeError):
        Cancel("gone").reason = "other"  # type: ignore[misc]
