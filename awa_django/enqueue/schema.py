"""What to do about tables that are not there: an enqueue is often the first to miss them."""

from __future__ import annotations

from django.db import ProgrammingError

from awa_django.errors import SchemaMismatch
from awa_django.storage.inspect import SCHEMA_VERSION

# undefined_table, invalid_schema_name
_NOT_THERE = {"42P01", "3F000"}


def explain_missing_schema(exc: ProgrammingError) -> None:
    """Raises: SchemaMismatch where the error says that a relation of the queue, or its schema, is missing."""
    if getattr(exc.__cause__, "sqlstate", None) in _NOT_THERE and '"awa' in str(exc):
        raise SchemaMismatch(expected=SCHEMA_VERSION, found=None) from exc
