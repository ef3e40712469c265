"""A flush after each test that commits, at a tenth of its price: a thousand tests do so.

Django truncates every table, and makes all content types and permissions anew. Here these stay as they
are, and of the other tables, which hold a few rows or none, the rows are deleted.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management.commands import flush

# What migrations and post_migrate write; nothing that a test commits refers to them from elsewhere.
KEPT = frozenset({"auth_permission", "django_content_type", "django_migrations"})


def quick_sql_flush(
    style: Any, connection: Any, reset_sequences: bool = True, allow_cascade: bool = False
) -> list[str]:
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    emptied = [name for name in tables if name not in KEPT]
    if reset_sequences:
        statements: list[str] = connection.ops.sql_flush(
            style, emptied, reset_sequences=True, allow_cascade=allow_cascade
        )
        return statements
    # In any order: Django's foreign keys are checked at the end of the transaction.
    deletes = [f"DELETE FROM {connection.ops.quote_name(name)}" for name in emptied]
    return ["; ".join(deletes)] if deletes else []


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", quick_sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *args, **options: None)
        yield
