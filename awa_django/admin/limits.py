"""How long a page may take the database, and what is said when it would take longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import BigIntegerField, Func, TextField, Value
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from psycopg import errors

from awa_django.conf import get_settings
from awa_django.storage.limits import limit_reading, restore_reading


class TooSlow(Exception):
    """A statement of the page took longer than ``AWA["ADMIN_STATEMENT_TIMEOUT"]``, and was ended."""


@contextmanager
def limited(alias: str) -> Iterator[None]:
    """Bound what is read on this alias inside, and plan it by the order of indexes.

    What is set holds for a transaction of its own. Inside another one (``ATOMIC_REQUESTS``) it is taken
    back at the end, by one statement more.

    Raises: TooSlow, and then nothing is left of it.
    """
    connection = connections[alias]
    goes_on = connection.in_atomic_block
    with _cancelled_is_too_slow(), transaction.atomic(using=alias):
        before = limit_reading(connection, longest=get_settings().admin_statement_timeout)
        yield
        if goes_on:
            restore_reading(connection, before)


@contextmanager
def limited_by_a_row(alias: str) -> Iterator[None]:
    """As ``limited``, for a page that begins with one row by its key: its limit comes with that row.

    So it costs no statement. Nothing may be written inside. Raises: TooSlow.
    """
    with _cancelled_is_too_slow(), transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)  # what the row has set goes with it


def limit_by_a_row() -> Func:
    """A column of that row: it bounds each later statement of the transaction; a lower limit stays."""
    longest = get_settings().admin_statement_timeout
    milliseconds = None if longest is None else max(1, round(longest.total_seconds() * 1000))
    return Func(
        Value(milliseconds, output_field=BigIntegerField(null=True)),
        template="set_config('statement_timeout', (SELECT "
        "coalesce(least(nullif(setting.setting::bigint, 0), %(expressions)s::bigint), 0)::text "
        "FROM pg_catalog.pg_settings AS setting WHERE setting.name = 'statement_timeout'), true)",
        output_field=TextField(),
    )


@contextmanager
def _cancelled_is_too_slow() -> Iterator[None]:
    try:
        yield
    except OperationalError as exc:
        if isinstance(exc.__cause__, errors.QueryCanceled):
            raise TooSlow from exc
        raise


def too_slow(page: Any, request: HttpRequest) -> HttpResponse:
    """The page instead of one that took too long."""
    request.current_app = page.admin_site.name
    longest = get_settings().admin_statement_timeout
    context = {
        **page.admin_site.each_context(request),
        "title": _("This took too long"),
        "opts": page.opts,
        "media": page.media,
        "seconds": longest and longest.total_seconds(),
        "is_filtered": bool(request.GET),
    }
    return TemplateResponse(request, "admin/awa/too_slow.html", context, status=503)
