"""Committing where ``DATABASES`` say ``"AUTOCOMMIT": False``: for what is nobody's transaction but ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import Error, connections


@contextmanager
def committing(alias: str) -> Iterator[None]:
    """For the block, have Django commit on this thread's connection of the alias as it does elsewhere.

    Where autocommit is off, ``atomic`` ends without a commit and what was done in it is rolled back when
    the connection closes. A block of ``atomic`` that is open already stays its owner's; what was begun
    without one is committed.
    """
    connection = connections[alias]
    if connection.in_atomic_block or connection.get_autocommit():
        yield
        return
    connection.commit()
    connection.set_autocommit(True)
    try:
        yield
    finally:
        if connection.connection is not None:  # a new one is off by itself
            with suppress(Error):  # it broke, which whoever used it was told
                connection.set_autocommit(False)
