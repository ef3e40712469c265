"""System checks: what can be known to be wrong before a job is enqueued or run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.db import DEFAULT_DB_ALIAS, connections, router

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.errors import AwaError
from awa_django.models import HotJob

TAG = "awa"


@register(TAG)
def check_database(**_: Any) -> list[CheckMessage]:
    """The alias of ``AWA["DATABASE"]`` exists and is PostgreSQL. Opens no connection."""
    return list(_database_messages())


@register(TAG)
def check_time_zone(**_: Any) -> list[CheckMessage]:
    """Django reads instants as such, not as the wall clock of ``TIME_ZONE``."""
    if settings.USE_TZ:
        return []
    return [
        Error(
            "USE_TZ is False: Django then reads instants without their time zone, in which an hour is there "
            "twice when clocks go back. The pages of the admin and the awa_* commands fail on them.",
            hint="Set USE_TZ = True, as Django has it by default. A project that only enqueues and runs "
            "jobs can silence this.",
            id="awa.E007",
        )
    ]


@register(TAG)
def check_declarations(**_: Any) -> list[CheckMessage]:
    """What the decorators could not look at, because modules were still loading."""
    messages: list[CheckMessage] = []
    for handler in registry.handlers():
        try:
            handler.signature.types  # noqa: B018  (resolves the annotations)
        except AwaError as exc:
            messages.append(Error(str(exc), obj=handler.where, id="awa.E003"))
    try:
        periodic_jobs = registry.periodic_jobs()
    except AwaError as exc:
        messages.append(Error(str(exc), id="awa.E004"))
        return messages
    for job in periodic_jobs:
        try:
            job.encode()
            job.stored_metadata()
        except AwaError as exc:
            messages.append(Error(f"periodic job {job.name!r}: {exc}", obj=job.handler.where, id="awa.E004"))
    return messages


@register(TAG)
def check_caches(**_: Any) -> list[CheckMessage]:
    """No cache answers for the queue's tables: workers write them without the ORM, which would empty it."""
    label = HotJob._meta.app_label
    if not apps.is_installed("cachalot") or not getattr(settings, "CACHALOT_ENABLED", True):
        return []
    only = {
        *getattr(settings, "CACHALOT_ONLY_CACHABLE_APPS", ()),
        *getattr(settings, "CACHALOT_ONLY_CACHABLE_TABLES", ()),
    }
    if label in getattr(settings, "CACHALOT_UNCACHABLE_APPS", ()) or (only and label not in only):
        return []
    return [
        checks.Warning(
            "django-cachalot caches what the models of the queue answer, and sees no write of a worker: the "
            "admin shows jobs as they were.",
            hint=f"CACHALOT_UNCACHABLE_APPS = ({label!r},)",
            id="awa.W004",
        )
    ]


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
    if not settings.DATABASES[alias].get("AUTOCOMMIT", True):
        yield checks.Warning(
            f"AUTOCOMMIT of the alias {alias!r} is False: Django commits nothing there, not even at the end "
            "of transaction.atomic(). Enqueued jobs, what handlers write, calls of awa_django.operations, "
            "the admin and `migrate` are lost where no code of yours commits.",
            hint="Leave AUTOCOMMIT out: ATOMIC_REQUESTS and transaction.atomic() make transactions. Silence "
            "this if your code commits all that it does.",
            id="awa.W003",
        )
    yield from _routing_messages(alias)


def _routing_messages(alias: str) -> Iterator[CheckMessage]:
    """Whether the routers agree with the setting, and whose rows jobs cannot commit together with."""
    written_to = router.db_for_write(HotJob)
    if written_to == alias and not router.allow_migrate(alias, HotJob._meta.app_label):
        yield checks.Warning(
            f"The queue is on the alias {alias!r}, where the routers let this app not be migrated.",
            hint="Put 'awa_django.router.AwaRouter' first in DATABASE_ROUTERS; with django-tenants list "
            "'awa_django' in SHARED_APPS.",
            id="awa.W002",
        )
    elif written_to != alias:
        yield checks.Warning(
            f"The queue is on the alias {alias!r}, but the routers send this app to {written_to!r}: "
            "`migrate` and the models' save() go there.",
            hint="Put 'awa_django.router.AwaRouter' first in DATABASE_ROUTERS.",
            id="awa.W002",
        )
    aliases = _aliases_of_apps()
    elsewhere = sorted(label for label, used in aliases.items() if alias not in used)
    if elsewhere and (alias != DEFAULT_DB_ALIAS or len(elsewhere) == len(aliases)):
        yield checks.Warning(
            f"The queue is on the alias {alias!r}, and the models of {', '.join(elsewhere)} are not: "
            "no transaction includes both.",
            hint=f"A job is committed with transaction.atomic(using={alias!r}). Enqueue it after the "
            "commit of the rows it is about (transaction.on_commit), and silence this.",
            id="awa.W001",
        )


def _aliases_of_apps() -> dict[str, set[str]]:
    """The aliases that the tables of each other app are written on."""
    found: dict[str, set[str]] = {}
    for model in apps.get_models():
        if model._meta.managed and not model._meta.proxy and model._meta.app_label != HotJob._meta.app_label:
            found.setdefault(model._meta.app_label, set()).add(router.db_for_write(model))
    return found
