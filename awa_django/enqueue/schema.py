"""What to do about a database that has no queue: an enqueue is often the first to notice."""

from __future__ import annotations

from django.db import ProgrammingError, connections

from awa_django.conf import get_settings
from awa_django.errors import ConfigurationError, SchemaMismatch
from awa_django.storage.inspect import SCHEMA_VERSION

# undefined_table, invalid_schema_name
_NOT_THERE = {"42P01", "3F000"}


def explain_missing_queue(exc: Exception) -> None:
    """Look for why an enqueue has failed; returns where it is something else.

    Raises: SchemaMismatch where a relation of the queue, or its schema, is missing; ConfigurationError where
    the alias is no PostgreSQL, as in the settings of tests that have another database than the site.
    """
    alias = get_settings().database
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        raise ConfigurationError(
            f"the queue lives in PostgreSQL, but the database alias {alias!r} is {vendor}: "
            "point AWA['DATABASE'] to a PostgreSQL alias, in the settings of tests too"
        ) from exc
    is_missing = isinstance(exc, ProgrammingError) and getattr(exc.__cause__, "sqlstate", None) in _NOT_THERE
    if is_missing and '"awa' in str(exc):
        raise SchemaMismatch(expected=SCHEMA_VERSION, found=None) from exc
