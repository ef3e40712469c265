"""Durations as people write them: a timedelta, or a number of seconds."""

from __future__ import annotations

from datetime import timedelta

from django.utils.formats import number_format

# timedelta ends at about 2.7 million years; beyond a century no duration here means anything.
LONGEST = timedelta(days=36_525)
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def as_duration(
    value: object,
    name: str,
    *,
    least: timedelta = timedelta(0),
    most: timedelta = LONGEST,
) -> timedelta:
    """The duration that ``value`` (a timedelta, or seconds) stands for.

    Raises: ValueError naming ``name`` when it is neither, not finite, or outside ``least..most``.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not -most.total_seconds() <= value <= most.total_seconds():  # refuses NaN too
            raise ValueError(f"{name} must be between {least} and {most}, not {value!r} seconds")
        duration = timedelta(seconds=value)
    else:
        raise ValueError(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    if not least <= duration <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {duration}")
    return duration


def spell(duration: timedelta) -> str:
    """A duration for people, in its two largest units: ``2 h 5 min``, ``0.4 s`` (``0,4 s`` in German)."""
    seconds = max(duration.total_seconds(), 0.0)
    if seconds < 10:
        return f"{number_format(round(seconds, 1), decimal_pos=1)} s"
    rest = int(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{number_format(count, force_grouping=True)} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))
