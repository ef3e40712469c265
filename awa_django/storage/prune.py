"""Prune: delete ended jobs that are past the retention of their queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch

NOTHING: Mapping[str, float] = MappingProxyType({})


class RetentionRule(NamedTuple):
    """How many seconds an ended job of this state is kept; ``queue`` None: of every other queue."""

    state: str
    queue: str | None
    age: float


class PruneBatch(NamedTuple):
    """``cursor`` is where the next batch of the same pass begins; None when there is nothing more."""

    cursor: datetime | None
    examined_count: int
    pruned_count: int


def prune(
    connection: Connection,
    rules: Sequence[RetentionRule],
    *,
    cursor: datetime | None,
    batch: int,
    kept: Mapping[str, float] = NOTHING,
) -> PruneBatch:
    """Look at the next ``batch`` ended rows, oldest first, and delete those past their retention.

    ``kept``: kind -> how many seconds its jobs are kept at least, whatever the rules say.
    """
    rows = fetch(
        connection,
        "prune",
        cursor=cursor,
        min_age=min(rule.age for rule in rules),
        states=[rule.state for rule in rules],
        queues=[rule.queue for rule in rules],
        ages=[rule.age for rule in rules],
        kinds=list(kept),
        kind_ages=list(kept.values()),
        batch=batch,
    )
    return PruneBatch._make(rows[0])
