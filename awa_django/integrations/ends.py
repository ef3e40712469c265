"""Ends: what the worker will make of how a handler ended, for middleware that sees it first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from awa_django import registry
from awa_django.context import JobContext
from awa_django.errors import TerminalError


def judged(context: JobContext, exc: BaseException) -> Literal["discarded", "failed", "retried"]:
    """The end of the run that raised this; that the job's ``max_age`` is over by then is not foreseen."""
    handler = registry.find(context.kind)
    if isinstance(exc, TerminalError):
        return "failed"
    if handler is not None and isinstance(exc, handler.discard_on):
        return "discarded"
    if context.attempt >= context.max_attempts:
        return "failed"
    retried = None if handler is None else handler.retry_on
    if retried is not None and isinstance(exc, Exception) and not isinstance(exc, retried):
        return "failed"
    return "retried"


def is_timed_out(context: JobContext) -> bool:
    """Whether the run has had the time of its ``timeout``."""
    return context.deadline is not None and datetime.now(UTC) >= context.deadline


def is_withdrawn(context: JobContext) -> bool:
    """Whether somebody cancelled the job, or its lease may be another's by now: nobody waits for its end."""
    return context.is_cancelled and not is_timed_out(context)
