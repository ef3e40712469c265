"""Enqueue what has to stay when the caller's transaction rolls back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from awa_django.committing import committing
from awa_django.conf import get_settings
from awa_django.storage.inspect import limit_lock_wait

# A unique key that the caller's own transaction holds would be waited for for ever.
LONGEST_LOCK_WAIT_MS = 5_000


@contextmanager
def own_transaction() -> Iterator[None]:
    """Commit what is enqueued in the block when the block ends, whatever becomes of the open transaction.

    The queue's alias has a connection of its own for so long, which costs one more connection to the
    server and the time to open it. It sees nothing that the open transaction wrote, and neither does
    the handler, which may run before that commits. An error in the block leaves no job of it.

    In a ``TestCase`` the jobs stay in the test's transaction, which takes them away at its end.
    For sync code: around ``aenqueue`` it does not reach the thread that enqueues.

    Raises: UniqueConflict for a key that the open transaction took, or that is waited for for 5 s.
    """
    alias = get_settings().database
    outer = connections[alias]
    if _is_of_a_test_case(outer):
        with transaction.atomic(using=alias):
            yield
        return
    connections[alias] = outer.copy()
    try:
        with committing(alias), transaction.atomic(using=alias):
            limit_lock_wait(connections[alias], milliseconds=LONGEST_LOCK_WAIT_MS)
            yield
    finally:
        connections[alias].close()
        connections[alias] = outer


def _is_of_a_test_case(connection: Any) -> bool:
    """Whether a ``TestCase`` has the open transaction, whose rows no other connection may outlive."""
    return connection.in_atomic_block and any(block._from_testcase for block in connection.atomic_blocks)
