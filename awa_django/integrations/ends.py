"""Ends: what the worker will make of how a handler ended, for middleware that sees it first."""

from __future__ import annotations

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
