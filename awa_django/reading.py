"""Reading for people and for what watches the queue: bounded in time, and nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from awa_django.storage.limits import limit_reading


@contextmanager
def bounded(alias: str, *, longest: timedelta) -> Iterator[BaseDatabaseWrapper]:
    """A transaction that reads: each statement for so long, and planned in the order of its index."""
    connection = connections[alias]
    with transaction.atomic(using=alias):
        limit_reading(connection, longest=longest)
        yield connection
        # What was set in it goes with it, also in a transaction that goes on.
        transaction.set_rollback(True, using=alias)
