"""System checks: what can be known to be wrong before a job is enqueued or run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.db import DEFAULT_DB_ALIAS, connections

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.errors import AwaError

TAG = "awa"


@register(TAG)
def check_database(**_: Any) -> list[CheckMessage]:
    """The alias of ``AWA["DATABASE"]`` exists and is PostgreSQL. Opens no connection."""
    return list(_database_messages())


@register(TAG)
def check_declarations(**_: Any) -> list[CheckMessage]:
    """What the decorators could not look at, because modules were still loading."""
    messages: list[CheckMessage] = []
    for handler in registry.handlers():
        try:
            handler.signature.types  # noqa: B018  (resolves the annotations)
        except AwaError as exc:
            messages.append(Error(str(exc), obj=handler.where, id="awa.E003"))
    for job in registry.periodic_jobs():
        try:
            job.encode()
        except AwaError as exc:
            messages.append(Error(f"periodic job {job.name!r}: {exc}", obj=job.handler.where, id="awa.E004"))
    return messages


def _database_messages() -> Iterator[CheckMessage]:
    alias = get_settings().database
    if alias not in settings.DATABASES:
        yield Error(
            f"AWA['DATABASE'] names {alias!r}, which is not in DATABASES.",
            hint=f"The aliases are {', '.join(sorted(settings.DATABASES))}.",
            id="awa.E001",
        )
        return
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        yield Error(
            f"The queue lives in PostgreSQL, but the alias {alias!r} is {vendor}.",
            hint="Point AWA['DATABASE'] to a PostgreSQL alias.",
            id="awa.E002",
        )
    if alias != DEFAULT_DB_ALIAS:
        yield checks.Warning(
            f"The queue is on the alias {alias!r}: transactions on other aliases do not include its jobs.",
            hint=f"Enqueue inside transaction.atomic(using={alias!r}), together with models of that alias; "
            "silence this when you do.",
            id="awa.W001",
        )
