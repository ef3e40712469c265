"""Wake idle workers after an insert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError

from awa_django.logs import get_logger
from awa_django.storage.wake import wake

logger = get_logger(__name__)


def wake_workers(connection: Any, queues: Iterable[str]) -> None:
    """Wake who waits for one of the queues, when the open transaction commits.

    A statement of its own after the insert: the jobs are in whatever becomes of it, so outside of a
    transaction its failure is logged and not raised.
    """
    asked = list(dict.fromkeys(queues))
    try:
        wake(connection, asked)
    except DatabaseError:
        if connection.in_atomic_block or not connection.get_autocommit():
            raise
        logger.warning("could not wake the workers of %s: they will poll", asked, exc_info=True)
