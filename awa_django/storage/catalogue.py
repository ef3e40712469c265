"""The catalogue of kinds, so that no page searches the big tables for its choices."""

from __future__ import annotations

from collections.abc import Mapping

from awa_django.storage._sql import Connection, run


def catalogue_kinds(connection: Connection, kinds: Mapping[str, str]) -> None:
    """Remember the kinds a worker serves: kind -> its queue."""
    run(connection, "catalogue_kinds", kinds=list(kinds), queues=list(kinds.values()))


def catalogue_recent_kinds(connection: Connection, *, window: int) -> None:
    """Remember the kinds of the newest ``window`` hot rows and of all deferred rows."""
    run(connection, "catalogue_recent_kinds", window=window)
