"""Wake the workers that wait for a queue."""

from __future__ import annotations

from collections.abc import Sequence

from awa_django.storage._sql import Connection, fetch


def wake(connection: Connection, queues: Sequence[str]) -> bool:
    """Wake who waits for one of the queues, at the commit; whether anybody does.

    A hint: whoever is not woken finds the jobs by polling.
    """
    return bool(fetch(connection, "wake", queues=list(queues))[0][0])
