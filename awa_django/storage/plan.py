"""Plans that do not depend on statistics: docs/design/0005."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakSet

import psycopg
from django.db import transaction

from awa_django.storage._sql import Connection, fetch

# Sessions of our own which plan so whatever they run.
_by_index: WeakSet[psycopg.Connection[Any]] = WeakSet()


def plan_in_order(connection: Connection) -> None:
    """For the rest of the transaction: no statistics shall lead to another index, or to a sort."""
    fetch(connection, "plan_in_order")


def always_plan_by_index(session: psycopg.Connection[Any]) -> None:
    """Have whatever a session runs planned as in ``planned_by_index``: it must be nobody else's."""
    _plan_by_index(session, is_local=False)
    _by_index.add(session)


@contextmanager
def planned_by_index(connection: Connection) -> Iterator[None]:
    """Statements in here come to the rows of a table, and lock them, in the order of the index they go by.

    Two that lock the same rows then never wait for each other in a circle. They are in one transaction,
    unless the session always plans so.
    """
    if isinstance(connection, psycopg.Connection) and connection in _by_index:
        yield
        return
    with _transaction(connection):
        _plan_by_index(connection, is_local=True)
        yield


def _plan_by_index(connection: Connection, *, is_local: bool) -> None:
    fetch(connection, "plan_by_index", is_local=is_local)


def _transaction(connection: Any) -> AbstractContextManager[object]:
    """Of psycopg's connection, or of Django's."""
    alias = getattr(connection, "alias", None)
    within: AbstractContextManager[object]
    within = connection.transaction() if alias is None else transaction.atomic(using=alias)
    return within
