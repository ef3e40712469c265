from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awa_django.cron import latest_fire, next_fires, validate
from awa_django.errors import ConfigurationError

NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires_on(expr: str, zone: str, day: str) -> list[str]:
    """The fire times of one UTC day and the morning after, as HH:MM in UTC."""
    start = utc(day)
    fires = next_fires(expr, zone, start - timedelta(microseconds=1), 200)
    return [f"{fire:%H:%M}" for fire in fires if fire < start + timedelta(days=1)]


def test_fires_in_the_zone_given() -> None:
    assert next_fires("0 9 * * mon-fri", "Europe/Madrid", utc("2026-01-02 09:00"), 2) == [
        utc("2026-01-05 08:00"),
        utc("2026-01-06 08:00"),
    ]
    assert next_fires("@daily", "UTC", utc("2026-01-01 00:00"), 1) == [utc("2026-01-02 00:00")]


@pytest.mark.fault("U44", injected="New York, daily 02:30 on 2026-03-08")
def test_fixed_time_that_is_missing_fires_at_the_end_of_the_gap() -> None:
    assert fires_on("30 2 * * *", NEW_YORK, "2026-03-08") == ["07:00"]


def test_two_times_in_the_gap_fire_once() -> None:
    assert fires_on("0,30 2 * * *", NEW_YORK, "2026-03-08") == ["07:00"]


@pytest.mark.fault("U44", injected="New York, daily 01:30 on 2026-11-01")
def test_fixed_time_that_comes_twice_fires_the_first_time() -> None:
    assert fires_on("30 1 * * *", NEW_YORK, "2026-11-01") == ["05:30"]


@pytest.mark.fault("U44", injected="New York, every 15 minutes and hourly across both changes")
def test_interval_fires_in_real_intervals_across_both_changes() -> None:
    assert len(fires_on("*/15 * * * *", NEW_YORK, "2026-03-08")) == 96
    assert len(fires_on("*/15 * * * *", NEW_YORK, "2026-11-01")) == 96
    assert len(fires_on("0 * * * *", NEW_YORK, "2026-11-01")) == 24


@pytest.mark.parametrize("expr", ["30 1 * * *", "0,30 2 * * *", "*/15 * * * *", "5 */2 * * *", "0 3 * * sun"])
@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01"])
@settings(max_examples=30)
@given(minutes=st.integers(0, 60 * 24))
@pytest.mark.fault("F43", injected="a leader that starts at any minute of a day with a change of clocks")
def test_fire_times_do_not_depend_on_where_one_starts(expr: str, day: str, minutes: int) -> None:
    """A leader that starts in the doubled hour must not fire again what fired before it."""
    start = utc(day)
    every = next_fires(expr, NEW_YORK, start, 300)
    after = start + timedelta(minutes=minutes)
    expected = [fire for fire in every if fire > after][:5]
    assert next_fires(expr, NEW_YORK, after, len(expected)) == expected


@pytest.mark.parametrize("expr", ["* * * * *", "30 1 * * *", "0 0 29 2 *", "0 9 * * mon-fri", "* * 1 1 *"])
@pytest.mark.parametrize("gap", [timedelta(0), timedelta(minutes=7), timedelta(days=3), timedelta(days=1000)])
def test_latest_fire_is_the_last_of_all(expr: str, gap: timedelta) -> None:
    until = utc("2026-11-01 06:30")
    after = until - gap
    fires = [fire for fire in next_fires(expr, NEW_YORK, after, 4_400) if fire <= until]
    if len(fires) < 4_400:
        assert latest_fire(expr, NEW_YORK, after, until) == (fires[-1] if fires else None)
    else:
        latest = latest_fire(expr, NEW_YORK, after, until)
        assert latest is not None
        assert latest <= until < next_fires(expr, NEW_YORK, latest, 1)[0]


def test_latest_fire_includes_its_end_and_not_its_start() -> None:
    noon = utc("2026-01-01 12:00")
    assert latest_fire("0 12 * * *", "UTC", noon - timedelta(hours=1), noon) == noon
    assert latest_fire("0 12 * * *", "UTC", noon, noon) is None
    assert latest_fire("0 12 * * *", "UTC", noon + timedelta(days=9), noon) is None


def test_latest_fire_of_centuries_is_found_at_once() -> None:
    after = datetime(1, 1, 2, tzinfo=UTC)
    assert latest_fire("* * * * *", NEW_YORK, after, utc("2026-01-01 00:00:30")) == utc("2026-01-01 00:00")


@pytest.mark.parametrize(
    "expr", ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 31 2 *", "x", "@reboot", "*/0 * * * *"]
)
def test_wrong_expression_is_refused_by_name(expr: str) -> None:
    with pytest.raises(ConfigurationError, match="cron expression"):
        validate(expr, "UTC")


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "Europe"])
def test_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="no time zone"):
        validate("@daily", zone)


def test_good_declaration_is_accepted() -> None:
    validate("0 9 * * MON-FRI", "Europe/Madrid")
    validate("0 0 29 2 *", "UTC")
