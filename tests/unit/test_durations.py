from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import translation

from awa_django.durations import as_duration, spell


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0.0 s"), (0.44, "0.4 s"), (9.9, "9.9 s"), (59.9, "59 s"), (60, "1 min"), (90, "1 min 30 s"),
        (3_600, "1 h"), (3_605, "1 h"), (7_500, "2 h 5 min"), (86_400 * 1_234 + 3_600, "1,234 d 1 h"),
    ],
)  # fmt: skip
def test_a_duration_is_spelled_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert spell(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("language", "texts"), [("de", ["0,4 s", "1.234 d"]), ("en", ["0.4 s", "1,234 d"])])
def test_a_spelled_duration_has_the_numbers_of_the_reader(language: str, texts: list[str]) -> None:
    with translation.override(language):
        assert [spell(timedelta(seconds=0.44)), spell(timedelta(days=1_234))] == texts
