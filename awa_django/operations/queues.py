"""What an operator does to queues: pause and resume."""

from __future__ import annotations

from datetime import datetime

from django.db import connections, transaction

from awa_django.codec import clean_text
from awa_django.conf import get_settings
from awa_django.operations.limits import LONGEST_NAME, check_instant, check_queue
from awa_django.operations.results import QueueResult
from awa_django.storage import queues
from awa_django.storage.insert import database_now
from awa_django.storage.wake import wake


def pause_queue(
    queue: str,
    *,
    by: str | None = None,
    until: datetime | None = None,
    shorten: bool = True,
    using: str | None = None,
) -> QueueResult:
    """Stop claims from the queue, until ``until`` or until it is resumed; jobs that run go on.

    With ``shorten=False`` a pause that lasts longer already is left alone, and ``changed`` is false.

    Raises:
        ValueError: the name of the queue is empty, too long or has a NUL, or ``until`` is naive or has passed
            by the database's clock.
    """
    check_queue(queue)
    connection = connections[using or get_settings().database]
    if until is not None:
        check_instant("until", until)
        if until <= database_now(connection):
            raise ValueError(f"until has passed, so the pause would be over at once: {until.isoformat()}")
    changed = queues.pause_queue(
        connection,
        queue,
        paused_by=None if by is None else clean_text(by, LONGEST_NAME),
        paused_until=until,
        shorten=shorten,
    )
    return QueueResult(queue, paused=True, changed=changed)


def resume_queue(queue: str, *, using: str | None = None) -> QueueResult:
    """Let claims from the queue go on, and wake its workers."""
    check_queue(queue)
    alias = using or get_settings().database
    with transaction.atomic(using=alias):
        changed = queues.resume_queue(connections[alias], queue)
        if changed:
            wake(connections[alias], [queue])
    return QueueResult(queue, paused=False, changed=changed)
