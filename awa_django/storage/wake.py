"""Wake the workers that wait for a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch


class Woken(NamedTuple):
    """Whether anybody was woken, and the process of the server that answered."""

    anybody: bool
    backend_pid: int


def wake(connection: Connection, queues: Sequence[str]) -> Woken:
    """Wake who waits for one of the queues, at the commit.

    A hint: whoever is not woken finds the jobs by polling.
    """
    [row] = fetch(connection, "wake", queues=list(queues))
    return Woken(*row)
