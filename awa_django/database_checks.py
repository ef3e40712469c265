"""System checks that ask the database, run by ``manage.py check --database ALIAS`` and by ``migrate``.

What ``migrate`` can put right is a warning here: as an error it would keep ``migrate`` from running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.doctor import SCHEMA_OBJECTS
from awa_django.errors import SchemaMismatch
from awa_django.storage import survey
from awa_django.storage.inspect import SCHEMA_VERSION, schema_version

OLDEST_SERVER = 15
# A living worker refreshes its row every 15 s.
SEEN_WITHIN = timedelta(minutes=1)
# Available rows whose kinds are looked at: a look, not a scan of a backlog.
SAMPLE = 1_000
NAMES_AT_MOST = 1_000
NAMES_SHOWN = 10
# undefined_table, invalid_schema_name; insufficient_privilege.
_NOT_INSTALLED, _MAY_NOT_LOOK = {"42P01", "3F000"}, "42501"

Question = Callable[[BaseDatabaseWrapper], Iterator[CheckMessage]]


@register("awa", Tags.database)
def check_queue_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Whether the queue's database is fit for this code, and whether what waits there will be run.

    A role that may not look (a producer's) is told nothing.
    """
    alias = get_settings().database
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    connection = connections[alias]
    messages = list(_server(connection))
    found: int | None = None
    try:
        with transaction.atomic(using=alias):
            found = schema_version(connection)
    except ProgrammingError as exc:
        if _sqlstate(exc) == _MAY_NOT_LOOK:
            return messages
        if _sqlstate(exc) not in _NOT_INSTALLED:
            raise
    if found != SCHEMA_VERSION:
        # The other questions are of this code's schema.
        about_to_be_right = _is_migrating() and (found is None or found < SCHEMA_VERSION)
        return messages if about_to_be_right else [*messages, _wrong_schema(alias, found)]
    for question in (_objects, _unknown_kinds, _unserved_queues):
        messages += _ask(question, connection)
    return messages


def _ask(question: Question, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    try:
        with transaction.atomic(using=connection.alias):
            return list(question(connection))
    except ProgrammingError as exc:
        # Where an object is missing, the question about objects has said so.
        if _sqlstate(exc) not in {*_NOT_INSTALLED, _MAY_NOT_LOOK}:
            raise
        return []


def _is_migrating() -> bool:
    """Whether ``manage.py migrate`` asks, which needs not be told to migrate. Nothing but its name tells."""
    return sys.argv[1:2] == ["migrate"]


def _sqlstate(exc: ProgrammingError) -> str | None:
    return getattr(exc.__cause__, "sqlstate", None)


def _server(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    major, _ = connection.get_database_version()
    if major < OLDEST_SERVER:
        yield Error(
            f"The queue needs PostgreSQL {OLDEST_SERVER} or newer, and the alias {connection.alias!r} "
            f"is {major}.",
            hint="Upgrade the server, or point AWA['DATABASE'] to a newer one.",
            id="awa.E010",
        )
    if survey.is_standby(connection):
        yield Error(
            f"The alias {connection.alias!r} leads to a standby, where no job can be written or claimed.",
            hint="Point AWA['DATABASE'] to the alias that the project writes to.",
            id="awa.E011",
        )


def _wrong_schema(alias: str, found: int | None) -> CheckMessage:
    mismatch = str(SchemaMismatch(expected=SCHEMA_VERSION, found=found))
    if found is not None and found > SCHEMA_VERSION:
        hint = "No worker of this release starts on it."
        return checks.Warning(mismatch, hint=hint, id="awa.W011")
    hint = f"Here: `manage.py migrate awa --database {alias}`. No worker of this release starts before."
    return checks.Warning(mismatch, hint=hint, id="awa.W010")


def _objects(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    missing = SCHEMA_OBJECTS.ask(connection, {})
    if missing is not None:
        yield checks.Warning(
            f"{missing.title}: {_list(missing.examples)}.", hint=missing.advice, id="awa.W012"
        )


def _unknown_kinds(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    waiting = survey.waiting_kinds(connection, sample=SAMPLE, limit=NAMES_AT_MOST)
    unknown = [kind for kind in waiting if registry.find(kind) is None]
    if unknown:
        yield checks.Warning(
            f"Jobs wait whose kinds have no handler in this project: {_list(unknown)}.",
            hint="A handler that was renamed names its old kind in @job(aliases=[...]); one in a module of "
            "another name is imported by AWA['IMPORTS']. Jobs that nobody will run again: cancel_matching().",
            id="awa.W013",
        )


def _unserved_queues(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    served = survey.served_queues(connection, seen_within=SEEN_WITHIN)
    whose = "no living worker serves"
    if not served:
        served = {"default", *get_settings().queues, *registry.queues()}
        whose = "a worker without --queues does not serve"
    waiting = survey.waiting_queues(connection, limit=NAMES_AT_MOST)
    unserved = [queue for queue in waiting if queue not in served]
    if unserved:
        yield checks.Warning(
            f"Jobs wait in queues that {whose}: {_list(unserved)}.",
            hint="Start a worker with --queues, or add them to AWA['QUEUES'].",
            id="awa.W014",
        )


def _list(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
