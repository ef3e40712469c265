"""Empty the queue in the middle of a test that commits."""

from __future__ import annotations

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.storage import flush


def flush_queue() -> None:
    """Empty the queue's tables, as Django's flush does after each ``TransactionTestCase``.

    It locks the tables, so no worker should run.
    """
    alias = get_settings().database
    with transaction.atomic(using=alias):
        flush.flush(connections[alias])
