from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awa_django.cron import due_fires, next_fires, validate
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


@pytest.mark.parametrize(
    "expr", ["* * * * *", "30 1 * * *", "0 0 29 2 *", "0 9 * * mon-fri", "* * 1 1 *", "15,45 */2 L * *"]
)
@pytest.mark.parametrize("gap", [timedelta(0), timedelta(minutes=7), timedelta(days=3), timedelta(days=1000)])
@pytest.mark.parametrize("most", [1, 5])
def test_due_fires_are_the_newest_and_all_are_counted(expr: str, gap: timedelta, most: int) -> None:
    until = utc("2026-11-01 06:30")
    fires = [fire for fire in next_fires(expr, NEW_YORK, until - gap, 4_400) if fire <= until]
    due = due_fires(expr, NEW_YORK, until - gap, until, most)
    if len(fires) < 4_400:
        assert due == (fires[-most:], len(fires))
    else:
        assert len(due.fires) == most
        assert due.total == gap / timedelta(minutes=1)


def test_due_fires_include_their_end_and_not_their_start() -> None:
    noon = utc("2026-01-01 12:00")
    hour = timedelta(hours=1)
    assert due_fires("0 12 * * *", "UTC", noon - hour, noon, 1) == ([noon], 1)
    assert due_fires("0 12 * * *", "UTC", noon, noon + hour, 1) == ([], 0)
    assert due_fires("0 12 * * *", "UTC", noon + timedelta(days=9), noon, 1) == ([], 0)


def test_due_fires_of_centuries_are_found_at_once() -> None:
    after = datetime(1, 1, 2, tzinfo=UTC)
    due = due_fires("* * * * *", NEW_YORK, after, utc("2026-01-01 00:00:30"), 1)
    assert due.fires == [utc("2026-01-01 00:00")]
    assert due.total > 1_000_000_000


@pytest.mark.fault("U47", injected="48 h of `* * * * *`, and a week of `* * * * * *`")
def test_two_days_of_each_minute_are_counted_exactly() -> None:
    now = utc("2026-06-01 12:00:30")
    assert due_fires("* * * * *", "UTC", now - timedelta(hours=48), now, 1).total == 2_880
    assert due_fires("* * * * * *", "UTC", now - timedelta(days=7), now, 1).total == 604_800


# Expression, zone, from when (UTC), and the readings of the zone's clock at which it then fires.
CHANGES = {
    # Madrid: 02:00 became 03:00 on 29 March 2026, 03:00 became 02:00 on 25 October.
    "gap": ("30 2 * * *", "Europe/Madrid", "2026-03-28 12:00", ["29 03:00 +0200", "30 02:30 +0200"]),
    "gap, several": ("0,20,40 2 * * *", "Europe/Madrid", "2026-03-28 12:00",
                     ["29 03:00 +0200", "30 02:00 +0200"]),
    "gap, and its end": ("0 2,3 * * *", "Europe/Madrid", "2026-03-28 12:00",
                         ["29 03:00 +0200", "30 02:00 +0200", "30 03:00 +0200"]),
    "gap, interval": ("*/20 * * * *", "Europe/Madrid", "2026-03-29 00:30",
                      ["29 01:40 +0100", "29 03:00 +0200", "29 03:20 +0200"]),
    "gap, interval in its hour": ("*/20 2 * * *", "Europe/Madrid", "2026-03-28 12:00", ["30 02:00 +0200"]),
    "gap, with seconds": ("15 30 2 * * *", "Europe/Madrid", "2026-03-28 12:00",
                          ["29 03:00 +0200", "30 02:30:15 +0200"]),
    "twice": ("30 2 * * *", "Europe/Madrid", "2026-10-24 12:00", ["25 02:30 +0200", "26 02:30 +0100"]),
    "twice, amid": ("30 2 * * *", "Europe/Madrid", "2026-10-25 01:10", ["26 02:30 +0100"]),
    "twice, with seconds": ("15 30 2 * * *", "Europe/Madrid", "2026-10-24 12:00",
                            ["25 02:30:15 +0200", "26 02:30:15 +0100"]),
    "twice, interval": ("*/30 * * * *", "Europe/Madrid", "2026-10-25 00:10",
                        ["25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100", "25 03:00 +0100"]),
    "twice, hourly": ("0 * * * *", "Europe/Madrid", "2026-10-24 23:30",
                      ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
    "twice, hourly with seconds": ("0 0 * * * *", "Europe/Madrid", "2026-10-24 23:30",
                                   ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
    "gap, some seconds of a fixed minute": ("*/30 30 2 * * *", "Europe/Madrid", "2026-03-28 12:00",
                                            ["29 03:00 +0200", "30 02:30 +0200", "30 02:30:30 +0200"]),
    # Lord Howe: half an hour, 02:00 to 02:30 on 4 October 2026, 02:00 to 01:30 on 5 April.
    "half an hour's gap": ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 04:00",
                           ["04 02:30 +1100", "05 02:15 +1100"]),
    "half an hour's gap before": ("*/10 3 * * *", "Australia/Lord_Howe", "2026-10-03 04:00",
                                  ["04 03:00 +1100", "04 03:10 +1100"]),
    "half an hour twice": ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 04:00",
                           ["05 01:45 +1100", "06 01:45 +1030"]),
    "half an hour twice, interval": ("*/15 * * * *", "Australia/Lord_Howe", "2026-04-04 14:35",
                                     ["05 01:45 +1100", "05 01:30 +1030", "05 01:45 +1030"]),
    # Cairo: midnight is jumped over on Friday, 24 April 2026.
    "midnight that is missing": ("0 0 * * *", "Africa/Cairo", "2026-04-23 12:00",
                                 ["24 01:00 +0300", "25 00:00 +0300"]),
    "midnight that is missing, interval": ("*/30 0 * * *", "Africa/Cairo", "2026-04-23 12:00",
                                           ["25 00:00 +0300", "25 00:30 +0300"]),
    # Apia had no 30 December 2011: it went to the other side of the date line.
    "day that is missing": ("0 9 * * *", "Pacific/Apia", "2011-12-29 00:00",
                            ["29 09:00 -1000", "31 00:00 +1400", "31 09:00 +1400"]),
    # Rules that a country changed: Sao Paulo ended summer time in 2019, Istanbul stayed in it in 2016,
    # Pyongyang moved by half an hour in 2018, Casablanca leaves its time for Ramadan.
    "summer time given up": ("0 0 * * *", "America/Sao_Paulo", "2019-11-02 12:00",
                             ["03 00:00 -0300", "04 00:00 -0300"]),
    "winter time given up": ("30 3 * * *", "Europe/Istanbul", "2016-10-29 12:00",
                             ["30 03:30 +0300", "31 03:30 +0300"]),
    "another standard time": ("45 23 * * *", "Asia/Pyongyang", "2018-05-03 12:00",
                              ["03 23:45 +0830", "05 00:00 +0900", "05 23:45 +0900"]),
    "back for a month": ("30 2 * * *", "Africa/Casablanca", "2026-02-14 12:00",
                         ["15 02:30 +0100", "16 02:30 +0000"]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.fault("U44", injected="fixed times and intervals where clocks were changed, in 8 zones")
def test_fires_where_clocks_are_changed(change: str) -> None:
    expr, zone, after, expected = CHANGES[change]
    fires = next_fires(expr, zone, utc(after), len(expected))
    shown = [f"{fire.astimezone(ZoneInfo(zone)):%d %H:%M:%S %z}".replace(":00 ", " ") for fire in fires]
    assert shown == expected


ZONES = ("America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata", "America/St_Johns", "UTC")
FIELD = st.sampled_from(["*", "*/7", "0", "1,2,20", "2-5/2"])


@settings(max_examples=60)
@given(
    minute=FIELD,
    hour=FIELD,
    zone=st.sampled_from(ZONES),
    hours=st.integers(0, 24 * 500),
    length=st.integers(0, 60 * 40),
    most=st.integers(1, 4),
)
@pytest.mark.fault("F43", injected="any moment of two years, in zones with and without changes of clocks")
def test_what_is_due_is_what_would_have_fired(
    minute: str, hour: str, zone: str, hours: int, length: int, most: int
) -> None:
    expr = f"{minute} {hour} * * *"
    after = utc("2026-03-01 00:20") + timedelta(hours=hours)
    until = after + timedelta(minutes=length)
    fires = [fire for fire in next_fires(expr, zone, after, length + 1) if fire <= until]
    assert fires == sorted(set(fires))
    assert due_fires(expr, zone, after, until, most) == (fires[-most:], len(fires))


@pytest.mark.parametrize("expr", ["0 2 * * *", "15 2 * * *", "30 2,3 * * *", "*/10 * * * *", "9 10 2 * * *"])
@pytest.mark.parametrize("change", ["2026-03-29 01:00", "2026-10-25 01:00"])
@pytest.mark.parametrize("seconds", [-3601, -3600, -2, -1, 0, 1, 3599, 3600])
@pytest.mark.fault("F43", injected="a leader that starts at the very second at which clocks are changed")
def test_no_fire_is_lost_at_the_second_of_a_change(expr: str, change: str, seconds: int) -> None:
    start = utc(change) - timedelta(days=1)
    every = next_fires(expr, "Europe/Madrid", start, 200)
    at = utc(change) + timedelta(seconds=seconds)
    expected = [fire for fire in every if fire > at][:5]
    assert next_fires(expr, "Europe/Madrid", at, len(expected)) == expected
    before = due_fires(expr, "Europe/Madrid", start, at, 1).total
    assert before == len([fire for fire in every if fire <= at])
    assert before + due_fires(expr, "Europe/Madrid", at, every[-1], 1).total == len(every)


@pytest.mark.parametrize(
    "expr",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * * *",
        "61 * * * *",
        "0 0 31 2 *",
        "x",
        "@reboot",
        "*/0 * * * *",
        f"{'9' * 5000} * * * *",
    ],
)
def test_wrong_expression_is_refused_by_name(expr: str) -> None:
    with pytest.raises(ConfigurationError, match="cron expression"):
        validate(expr, "UTC")


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "Europe"])
def test_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="no time zone"):
        validate("@daily", zone)


@pytest.mark.parametrize(
    ("expr", "zone", "message"),
    [
        ("@daily", ZoneInfo("Europe/Madrid"), "a time zone is a string"),
        ("@daily", None, "a time zone is a string"),
        (5, "UTC", "a cron expression is a string"),
    ],
    ids=["zone", "none", "number"],
)
def test_what_is_no_string_is_refused(expr: Any, zone: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        validate(expr, zone)


def test_good_declaration_is_accepted() -> None:
    validate("0 9 * * MON-FRI", "Europe/Madrid")
    validate("0 0 29 2 *", "UTC")
    validate("*/10 * * * * *", "UTC")
