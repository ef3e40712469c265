"""Empty the queue after a test that commits."""

from __future__ import annotations

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.storage import flush


def flush_queue() -> None:
    """Empty the queue's tables: Django's flush after a ``TransactionTestCase`` leaves them alone.

    Call it in ``setUp`` of a test that commits. It locks the tables, so no worker should run.
    """
    alias = get_settings().database
    with transaction.atomic(using=alias):
        flush.flush(connections[alias])
