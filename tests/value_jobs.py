"""Jobs for the tests of values at the edges."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from awa_django import JobContext, RetryAfter, Snooze, job
from tests.handlers import effect

ODD = {
    "nul": "a\x00b",
    "surrogate": "\ud800",
    "nan": float("nan"),
    "huge": 10**400,
    "bytes": b"\xff",
    "set": {1},
    "object": object(),
}


@job(takes_context=True, max_attempts=1)
def report(context: JobContext, what: str) -> None:
    """Progress that JSON or PostgreSQL cannot hold."""
    context.progress(50, str(ODD[what]), checkpoint={"value": ODD[what]})  # type: ignore[dict-item]


@job(keep_result=True, max_attempts=1)
def give_model() -> object:
    return User(username="not saved")


@job(keep_result=True, max_attempts=1)
def give_megabytes(count: int) -> str:
    return "x" * (count * 2**20)


@job(takes_context=True, max_attempts=1)
def snooze(context: JobContext, delay: float, times: int = 1) -> Snooze | None:
    effect("snooze", context.run_lease)
    return Snooze(delay) if context.run_lease <= times else None


@job(max_attempts=1)
def retry_after(delay: float) -> RetryAfter:
    return RetryAfter(delay)


@job(max_attempts=2)
def measure(number: int, text: str = "") -> None:
    effect("measure", number)


@job(max_attempts=2)
async def measure_async(number: int, text: str = "") -> None:
    await sync_to_async(effect)("measure", number)
