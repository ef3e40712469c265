"""Cron expressions: from an expression and a time zone to fire times (pure).

Five fields as in Debian's cron, or a macro such as ``@daily``. Where clocks change, a schedule with
a fixed hour and minute fires once a day all the same (a missing time fires at the end of the gap, a
doubled one the first time); one whose minute or hour field begins with ``*`` fires in real intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
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
# The newest fire is looked for near the end first, so that a schedule which fires each minute and was
# last seen a year ago is not walked through: each window has at most a few thousand fires of a
# schedule that had none in the window before.
WINDOWS = (timedelta(hours=2), timedelta(days=3), timedelta(days=62), timedelta(days=366 * 9))


def validate(expr: str, timezone: str) -> None:
    """Raises: ConfigurationError naming the expression or the zone that cannot be used."""
    if not next_fires(expr, timezone, datetime(2000, 1, 1, tzinfo=UTC), 1):
        raise ConfigurationError(f"cron expression {expr!r} never fires")


def next_fires(expr: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    """The first ``count`` fire times later than ``after`` (aware), in UTC and ascending."""
    fires = _fires(expr, _zone(timezone), after)
    return [fire for fire, _ in zip(fires, range(count), strict=False)]


def latest_fire(expr: str, timezone: str, after: datetime, until: datetime) -> datetime | None:
    """The last fire time in UTC that is later than ``after`` and not later than ``until``, if any."""
    zone = _zone(timezone)
    for window in (*WINDOWS, None):
        start = after if window is None else max(after, _earlier(until, window))
        latest = None
        for fire in _fires(expr, zone, start):
            if fire > until:
                break
            latest = fire
        if latest is not None or start == after:
            return latest
    return None


def _fires(expr: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Ascending fire times later than ``after``, in UTC.

    cronsim walks local clock readings: round a change of clocks it may answer with a time before
    ``after``, or twice with the same instant, and both are skipped here.
    """
    fields = MACROS.get(expr.strip().lower(), expr)
    if len(fields.split()) != 5:
        raise ConfigurationError(
            f"cron expression {expr!r} needs five fields: minute, hour, day of month, month, day of week"
        )
    try:
        schedule = CronSim(fields, after.astimezone(zone))
    except CronSimError as exc:
        raise ConfigurationError(f"cron expression {expr!r} is wrong: {exc}") from exc
    last = after
    while True:
        try:
            at = next(schedule).astimezone(UTC)
        except (StopIteration, OverflowError):  # none within 50 years, or before the year 10,000
            return
        if at > last:
            last = at
            yield at


def _earlier(instant: datetime, by: timedelta) -> datetime:
    try:
        return instant - by
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:  # ZoneInfoNotFoundError is a KeyError
        raise ConfigurationError(
            f"there is no time zone {name!r}: use a name such as 'Europe/Madrid'"
        ) from exc
