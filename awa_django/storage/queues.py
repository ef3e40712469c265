"""Pausing queues, and what is known of them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch


def pause_queue(
    connection: Connection,
    queue: str,
    *,
    paused_by: str | None,
    paused_until: datetime | None,
    shorten: bool,
) -> bool:
    """Stop claims from the queue, until ``paused_until`` or until resumed; whether that changed anything.

    Without ``shorten`` a pause that lasts longer already stays as it is.
    """
    rows = fetch(
        connection,
        "pause_queue",
        queue=queue,
        paused_by=paused_by,
        paused_until=paused_until,
        shorten=shorten,
    )
    return bool(rows)


def resume_queue(connection: Connection, queue: str) -> bool:
    """Let claims from the queue go on; whether it was paused."""
    return bool(fetch(connection, "resume_queue", queue=queue))


class KnownNames(NamedTuple):
    """Names that are known from somewhere, each list sorted and cut."""

    queues: list[str]
    waiting: list[str]
    """Those of the queues in which jobs wait."""
    kinds: list[str]
    matches: list[str]
    """The kinds that a search means."""


def known_names(connection: Connection, *, limit: int, search: str | None = None) -> KnownNames:
    """Queues and kinds for choices, and the kinds in which ``search`` is found; in one statement."""
    rows = fetch(connection, "known_names", limit=limit, search=search or None)
    waiting, declared, kinds, matches = (
        [name for what, name in rows if what == wanted] for wanted in ("waiting", "declared", "kind", "match")
    )
    return KnownNames(sorted({*waiting, *declared})[:limit], waiting, kinds, matches)


def known_queues(connection: Connection, *, limit: int) -> list[str]:
    """The names of queues that were paused, are served, have a kind or have jobs that wait; sorted."""
    return known_names(connection, limit=limit).queues
