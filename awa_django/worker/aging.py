"""Aging: how long ago a claimed job was due first, and how long ago that may be at most.

The claim measures it, by the database's clock, and only for jobs that have a ``max_age``.
"""

from __future__ import annotations

import json
from typing import Protocol

from awa_django import registry


class Aging(Protocol):
    """What it takes to tell: a run, claimed or lost."""

    @property
    def kind(self) -> str: ...
    @property
    def metadata(self) -> str | None: ...


def aging_kinds() -> tuple[str, ...]:
    """Every kind and alias that is declared with a ``max_age``."""
    return tuple(
        kind
        for handler in registry.handlers()
        if handler.max_age is not None
        for kind in (handler.kind, *handler.aliases)
    )


def max_age(run: Aging) -> float | None:
    """The seconds after which the job is of no use: its own, or its kind's; None for ever."""
    own = _number(run, "awa:max_age")
    if own is not None and own > 0:
        return own
    handler = registry.find(run.kind)
    declared = None if handler is None else handler.max_age
    return None if declared is None else declared.total_seconds()


def age(run: Aging) -> float:
    """The seconds from when it was due first to its claim; 0 of a lost run, whose next claim tells."""
    return _number(run, "awa:age") or 0.0


def _number(run: Aging, key: str) -> float | None:
    if run.metadata is None or key not in run.metadata:
        return None
    try:
        value = json.loads(run.metadata)[key]
        # A century, as of every duration: what is beyond it is no number that people meant.
        return min(float(value), 3.2e9) if not isinstance(value, (bool, str)) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
