"""Durations as people write them: a timedelta, or a number of seconds."""

from __future__ import annotations

from datetime import timedelta

# timedelta ends at about 2.7 million years; beyond a century no duration here means anything.
LONGEST = timedelta(days=36_525)


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
