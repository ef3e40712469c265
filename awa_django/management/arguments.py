"""Arguments of commands as people write them: durations, instants, ids of jobs."""

from __future__ import annotations

import getpass
import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from awa_django.durations import LONGEST

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_PART = r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)"
_PARTS = re.compile(rf"(?:\s*{_PART})+\s*", re.ASCII)
_PLAIN = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def duration(text: str) -> timedelta:
    """``90`` (seconds), ``15m``, ``2h``, ``1h30m`` or ``1d``: above zero, a century at most."""
    if _PLAIN.fullmatch(text):
        seconds = float(text)
    elif _PARTS.fullmatch(text):
        seconds = sum(float(amount) * _SECONDS[unit] for amount, unit in re.findall(_PART, text))
    else:
        raise ArgumentTypeError(f"{text!r} is no duration: write 90 (seconds), 15m, 2h, 1h30m or 1d")
    if not 0 < seconds <= LONGEST.total_seconds():
        raise ArgumentTypeError(f"a duration is above 0 and a century at most, unlike {text!r}")
    return timedelta(seconds=seconds)


def instant(text: str) -> datetime:
    """ISO 8601; without an offset it is meant in the current time zone."""
    try:
        found = parse_datetime(text)
    except ValueError:  # well formed, and no such day or hour
        found = None
    if found is None:
        raise ArgumentTypeError(
            f"{text!r} is no instant: write 2026-01-31T18:30 or 2026-01-31T18:30:00+01:00"
        )
    try:
        return timezone.make_aware(found) if timezone.is_naive(found) else found
    except (ValueError, OverflowError) as exc:
        raise ArgumentTypeError(f"{text!r} is no instant of the current time zone") from exc


def positive(text: str) -> int:
    """A number of 1 or more."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def job_id(text: str) -> int:
    """The id of a job."""
    try:
        return positive(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{text!r} is no id of a job: it is a number of 1 or more") from None


def user() -> str | None:
    """Who runs the command, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under an id without a name
        return None
