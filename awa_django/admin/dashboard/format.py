"""How the dashboard writes numbers, durations and shares."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.formats import number_format

from awa_django.admin.words import grouped

_STEPS = ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h"), (float("inf"), 86_400.0, "d"))


def number(count: int, cap: int | None = None) -> str:
    """A count; one that reached its cap is at least that: ``10,000+``."""
    return f"{grouped(count)}+" if cap is not None and count >= cap else grouped(count)


def duration(seconds: float | None) -> str:
    """Two digits and a unit: ``12 ms``, ``2.3 s``, ``45 s``, ``12 min``, ``5 h``, ``3 d``."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return "<1 ms" if seconds > 0 else "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{number_format(seconds, 1)} s"
    _limit, length, unit = next(step for step in _STEPS if seconds < step[0])
    return f"{grouped(int(seconds / length))} {unit}"


def clock(instant: datetime, form: str = "%H:%M") -> str:
    """The time of day in the current time zone."""
    return timezone.localtime(instant).strftime(form)
