"""What a handler may return to say how its attempt ended: Snooze, RetryAfter, Cancel.

Anything else that it returns is a result, and the job is completed. They are returned, not raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from awa_django.durations import as_duration

# A wait of more than a year is a scheduled job, or a mistake in a unit.
LONGEST_WAIT = timedelta(days=365)


@dataclass(frozen=True, slots=True, init=False)
class Snooze:
    """Run the job again after ``delay`` (timedelta or seconds); the attempt is given back."""

    delay: timedelta

    def __init__(self, delay: timedelta | float) -> None:
        object.__setattr__(self, "delay", as_duration(delay, "Snooze.delay", most=LONGEST_WAIT))


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """The attempt failed for ``reason``: try again after ``delay``, or fail if it was the last one."""

    delay: timedelta
    reason: str

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        object.__setattr__(self, "delay", as_duration(delay, "RetryAfter.delay", most=LONGEST_WAIT))
        object.__setattr__(self, "reason", str(reason))  # handlers pass the exception they caught


@dataclass(frozen=True, slots=True, init=False)
class Cancel:
    """End the job as cancelled for ``reason``: there is nothing left to do, and that is no failure."""

    reason: str

    def __init__(self, reason: str = "") -> None:
        object.__setattr__(self, "reason", str(reason))


Outcome = Snooze | RetryAfter | Cancel
