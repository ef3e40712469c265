"""Cron expressions: from an expression and a time zone to fire times (pure).

Five fields as in Debian's cron (minute, hour, day of month, month, day of week), six with seconds
first, or a macro such as ``@daily``. Where the zone's clock is changed:

- a schedule of **fixed times** (neither its minute nor its hour begins with ``*``) fires once for each
  reading: at the end of the gap for those that the clock jumped over (once, however many they were), and
  the first time only for those that come twice;
- a schedule of **intervals** (its minute or its hour begins with ``*``) fires whenever the clock shows a
  reading that matches: never for those that were jumped over, both times for those that come twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from awa_django.errors import ConfigurationError

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
# 29 February on a given day of the week comes every 40 years at most.
HORIZON = 50 * 366 * DAY
# Within what every zone's offset can be computed.
EARLIEST, LATEST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
# The newest fires are looked for near the end first, so that a schedule which fires each minute and
# was last seen a year ago is not walked through.
WINDOWS = (timedelta(minutes=2), timedelta(hours=2), 3 * DAY, 62 * DAY, 9 * 366 * DAY, HORIZON)


Missed = Literal["coalesce", "skip", "catch_up"]
"""What happens to fires that were missed: one job for all, none, or one for each of the newest."""
DEFAULT_CATCH_UP, MOST_CATCH_UP = 100, 1000


class Due(NamedTuple):
    """The newest fires that are due, ascending, and how many are due in all."""

    fires: list[datetime]
    total: int


def validate(expr: str, timezone: str) -> None:
    """Raises: ConfigurationError naming the expression or the zone that cannot be used."""
    # Both are stored as texts: a ZoneInfo, which other libraries take, has one in its ``key``.
    for what, value, example in (
        ("cron expression", expr, "0 9 * * mon-fri"),
        ("time zone", timezone, "Europe/Madrid"),
    ):
        if not isinstance(value, str):
            raise ConfigurationError(f"a {what} is a string such as {example!r}, not {value!r}")
    if not next_fires(expr, timezone, datetime(2000, 1, 1, tzinfo=UTC), 1):
        raise ConfigurationError(f"cron expression {expr!r} never fires")


def check_missed(missed: object, catch_up_limit: object) -> None:
    """Raises: ValueError for a policy that does not exist, or a limit out of bounds."""
    if missed not in get_args(Missed):
        raise ValueError(f"missed must be one of {', '.join(get_args(Missed))}, not {missed!r}")
    if type(catch_up_limit) is not int or not 1 <= catch_up_limit <= MOST_CATCH_UP:
        raise ValueError(
            f"catch_up_limit must be an integer from 1 to {MOST_CATCH_UP}, not {catch_up_limit!r}"
        )


def next_fires(expr: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    """The first ``count`` fire times later than ``after`` (aware), in UTC and ascending."""
    begin = _following_second(after)
    fires = _timetable(expr, timezone).between(begin, _shifted(begin, HORIZON))
    return [fire for fire, _ in zip(fires, range(count), strict=False)]


def due_fires(expr: str, timezone: str, after: datetime, until: datetime, most: int) -> Due:
    """The newest ``most`` fire times later than ``after`` and not later than ``until``; all are counted."""
    timetable = _timetable(expr, timezone)
    begin, end = _following_second(after), _following_second(until)
    newest: deque[datetime] = deque(maxlen=most)
    for window in WINDOWS:
        start = max(begin, _shifted(end, -window))
        newest = deque(timetable.between(start, end), maxlen=most)
        if len(newest) == most or start == begin:
            break
    total = timetable.count(begin, end) if len(newest) == most else len(newest)
    return Due(list(newest), total)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A time without a change of the clock: its readings from ``begin`` until before ``end`` count."""

    begin: datetime
    end: datetime
    offset: timedelta
    missing: datetime | None
    """The readings from here to ``begin`` never came, and one fire makes up for them."""

    def instant(self, reading: datetime) -> datetime:
        return (reading - self.offset).replace(tzinfo=UTC)


class _Timetable:
    """An expression read in a zone. cronsim walks readings; the instants they stand for are found here."""

    def __init__(self, expr: str, timezone: str) -> None:
        self._zone = _zone(timezone)
        self._fields = MACROS.get(expr.strip().lower(), expr)
        fields = self._fields.split()
        if len(fields) not in (5, 6):
            raise ConfigurationError(
                f"cron expression {expr!r} needs five fields: minute, hour, day of month, month, "
                "day of week; or six, with the second first"
            )
        self._is_fixed = not any(field.startswith("*") for field in fields[-5:-3])
        try:
            self._rule = CronSim(self._fields, EARLIEST.replace(tzinfo=None))
        except (CronSimError, ValueError, TypeError, AssertionError) as exc:
            raise ConfigurationError(f"cron expression {expr!r} is wrong: {exc}") from exc

    def between(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """The fire times from ``begin`` until before ``end``, ascending; both are whole seconds."""
        for stretch in self._stretches(begin, end):
            reading = stretch.begin
            if self._makes_up(stretch):
                yield stretch.instant(reading)
                reading += SECOND
            for fire in self._readings(reading, stretch.end):
                yield stretch.instant(fire)

    def count(self, begin: datetime, end: datetime) -> int:
        """How many fire times there are from ``begin`` until before ``end``, without walking them."""
        total = 0
        for stretch in self._stretches(begin, end):
            made_up = self._makes_up(stretch)
            total += made_up + self._count(stretch.begin + SECOND * made_up, stretch.end)
        return total

    def _makes_up(self, stretch: _Stretch) -> bool:
        return stretch.missing is not None and any(self._readings(stretch.missing, stretch.begin))

    def _readings(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """The readings that match from ``begin`` until before ``end``."""
        try:
            for reading in CronSim(self._fields, begin - SECOND):
                if reading >= end:
                    return
                yield reading
        except OverflowError:  # the year 10,000
            return

    def _count(self, begin: datetime, end: datetime) -> int:
        """How many readings match from ``begin`` until before ``end``: each day that matches has as many."""
        if begin >= end:
            return 0
        first, last = begin.date(), end.date()
        days = sum(self._matches(first + n * DAY) for n in range((last - first).days))
        return (
            days * len(self._rule.hours) * len(self._rule.minutes) * len(self._rule.seconds)
            + (self._count_before(end.time()) if self._matches(last) else 0)
            - (self._count_before(begin.time()) if self._matches(first) else 0)
        )

    def _matches(self, day: date) -> bool:
        return day.month in self._rule.months and self._rule.match_day(day)

    def _count_before(self, at: time) -> int:
        rule = self._rule
        seconds = sum(second < at.second for second in rule.seconds) if at.minute in rule.minutes else 0
        minutes = sum(minute < at.minute for minute in rule.minutes) * len(rule.seconds) + seconds
        hours = sum(hour < at.hour for hour in rule.hours) * len(rule.minutes) * len(rule.seconds)
        return hours + (minutes if at.hour in rule.hours else 0)

    def _stretches(self, begin: datetime, end: datetime) -> Iterator[_Stretch]:
        """What the clock shows from one instant until before another, cut where it is changed."""
        at, offset = begin, self._offset(begin)
        reading, missing = _reading(at, offset), None
        yesterday = _shifted(at, -DAY)
        if self._is_fixed and self._offset(yesterday) > offset:  # perhaps amid readings that come again
            reading = max(reading, _reading(self._change(yesterday, at), self._offset(yesterday)))
        elif self._is_fixed and self._offset(at - SECOND) < offset:  # just at the end of a gap
            missing = _reading(at, self._offset(at - SECOND))
        span = 2 * DAY
        while at < end:
            until = self._next_change(at, min(end, _shifted(at, span)))
            yield _Stretch(reading, _reading(until, offset), offset, missing)
            at, before, offset = until, offset, self._offset(until)
            reading, missing = _reading(at, offset), None
            if self._is_fixed and offset > before:
                missing = _reading(at, before)
            elif self._is_fixed:
                reading = _reading(at, before)
            span = min(2 * span, HORIZON)

    def _next_change(self, at: datetime, limit: datetime) -> datetime:
        """The first instant after ``at`` with another offset, or ``limit``. No clock changes twice a day."""
        if self._zone is UTC:
            return limit
        while at < limit:
            later = min(at + DAY, limit)
            if self._offset(later) != self._offset(at):
                return self._change(at, later)
            at = later
        return limit

    def _change(self, early: datetime, late: datetime) -> datetime:
        """The instant between two of different offsets from which on that of the later one holds."""
        offset = self._offset(late)
        while late - early > SECOND:
            middle = early + (late - early) // 2 // SECOND * SECOND
            early, late = (early, middle) if self._offset(middle) == offset else (middle, late)
        return late

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta(0)


@lru_cache(maxsize=512)
def _timetable(expr: str, timezone: str) -> _Timetable:
    return _Timetable(expr, timezone)


def _reading(at: datetime, offset: timedelta) -> datetime:
    return (at + offset).replace(tzinfo=None)


def _following_second(at: datetime) -> datetime:
    return _shifted(at.astimezone(UTC).replace(microsecond=0), SECOND)


def _shifted(at: datetime, by: timedelta) -> datetime:
    """``at`` and so much more, within what can be computed."""
    try:
        return min(max(at + by, EARLIEST), LATEST)
    except OverflowError:
        return LATEST if by > timedelta(0) else EARLIEST


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:  # ZoneInfoNotFoundError is a KeyError
        raise ConfigurationError(
            f"there is no time zone {name!r}: use a name such as 'Europe/Madrid'"
        ) from exc
