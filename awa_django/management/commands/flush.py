"""``flush``: Django's own, which empties the queue too.

Django leaves unmanaged tables alone, and jobs would stay whose rows are gone. Every
``TransactionTestCase`` calls this command when it ends, so it leaves no job to the next test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.management.commands import flush
from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.storage.flush import anything_to_flush
from awa_django.storage.flush import flush as flush_queue


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        alias = options["database"]
        connection = connections[alias]
        if alias != get_settings().database or connection.vendor != "postgresql":
            super().handle(**options)
            return
        flush_managed = connection.ops.execute_sql_flush

        def flush_all(sql_list: Iterable[str]) -> None:
            flush_managed(sql_list)
            if anything_to_flush(connection):
                with transaction.atomic(using=alias):
                    flush_queue(connection)

        # Where Django runs its own statements: after whoever is asked has said yes.
        connection.ops.execute_sql_flush = flush_all  # type: ignore[method-assign]
        try:
            super().handle(**options)
        finally:
            del connection.ops.execute_sql_flush
