"""Doctor: what must hold and what should be known of the queue, each with what to do about it.

A violation means that a promise of this package is broken. A warning is about the surroundings: it
says why the queue may be slow or late, and breaks no promise. ``diagnose`` asks the database in one
snapshot; ``measure`` looks at the surroundings on connections of its own.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.doctor.measures import Measures, measure
from awa_django.doctor.questions import QUESTIONS, SCHEMA_OBJECTS, Finding, Question
from awa_django.storage import doctor as storage
from awa_django.storage import inspect
from awa_django.storage._sql import Connection

__all__ = ["QUESTIONS", "SCHEMA_OBJECTS", "Finding", "Measures", "Question", "diagnose", "measure"]

# A snapshot that old keeps every row that died since: claims get slower by the minute.
PINNED_AFTER = timedelta(minutes=5)
# Promotion is a matter of PROMOTE_INTERVAL; a minute covers a leader's failover.
PROMOTED_WITHIN = timedelta(minutes=1)
# The duty vacuums every 10 s under load; fewer dead rows cost a claim next to nothing.
DEAD_AT_LEAST = 100_000
UNVACUUMED_FOR = timedelta(minutes=10)


def diagnose(alias: str | None = None) -> list[Finding]:
    """All violations and warnings, on the queue's database or on ``alias``, seen in one snapshot.

    Inside an open transaction (a ``TestCase``) it uses that one as it is. Where objects of the
    schema are missing the invariants are not asked: the statements could not run.
    """
    using = get_settings().database if alias is None else alias
    connection = connections[using]
    in_transaction = connection.in_atomic_block
    with transaction.atomic(using=using):
        if not in_transaction:
            storage.read_one_snapshot(connection)
        return list(_findings(connection))


def _findings(connection: Connection) -> list[Finding]:
    missing = SCHEMA_OBJECTS.ask(connection, {})
    if missing is not None and any(example.startswith("relation") for example in missing.examples):
        return [missing]
    answers = [missing, _schema_version(connection)]
    settings = get_settings()
    rescue_takes = settings.stale_after + 2 * settings.sweep_interval
    values = {
        "silent_for": rescue_takes.total_seconds(),
        "overdue_by": (2 * settings.sweep_interval).total_seconds(),
        "older_than": PINNED_AFTER.total_seconds(),
        "promotion_overdue_by": PROMOTED_WITHIN.total_seconds(),
        "dead_at_least": DEAD_AT_LEAST,
        "unvacuumed_for": UNVACUUMED_FOR.total_seconds(),
    }
    answers += [question.ask(connection, values) for question in QUESTIONS]
    return [answer for answer in answers if answer is not None]


def _schema_version(connection: Connection) -> Finding | None:
    found = inspect.schema_version(connection)
    if found == inspect.SCHEMA_VERSION:
        return None
    return Finding(
        invariant="SCHEMA",
        name="schema_version",
        title=f"the schema is not at version {inspect.SCHEMA_VERSION}, on which this code works",
        count=1,
        examples=(str(found),),
        advice="Run `manage.py migrate awa`, or upgrade awa-django if the schema is the newer one.",
    )
