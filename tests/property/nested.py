"""A worker's connection inside an open transaction, in which it seems to be in autocommit.

So that now() stands still, nothing is committed, and the clean-up is one rollback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from psycopg.pq import TransactionStatus

from awa_django.worker.database import PsycopgConnection, Session


class Nested:
    """What the worker uses of a connection. Each statement outside of ``transaction`` is atomic by itself."""

    autocommit = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._depth = 0

    @property
    def info(self) -> SimpleNamespace:
        status = TransactionStatus.INTRANS if self._depth else TransactionStatus.IDLE
        return SimpleNamespace(transaction_status=status)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._depth += 1
        try:
            with self._connection.transaction():
                yield
        finally:
            self._depth -= 1

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        if self._depth:
            with self._connection.cursor() as cursor:
                yield cursor
        else:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor


class NestedSession(Session):
    """A session that is always on one such connection."""

    def __init__(self, connection: Nested) -> None:
        super().__init__("awa-model")
        self._nested = connection

    @contextmanager
    def use(self) -> Iterator[PsycopgConnection]:
        yield cast("PsycopgConnection", self._nested)
