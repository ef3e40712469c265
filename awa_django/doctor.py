"""Doctor: the invariants that SQL can check, each as a question, with what to do about an answer.

A violation means that a promise of this package is broken. A warning is about the surroundings: it
says why the queue may be slow or late, and breaks no promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.storage import doctor as storage
from awa_django.storage import inspect
from awa_django.storage._sql import Connection

# A snapshot that old keeps every row that died since: claims get slower by the minute.
PINNED_AFTER = timedelta(minutes=5)
# Promotion is a matter of PROMOTE_INTERVAL; a minute covers a leader's failover.
PROMOTED_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must not be, or that should be known (``is_warning``)."""

    invariant: str
    """The id of the invariant, or of the warning (``W...``)."""
    name: str
    """The question that found it."""
    title: str
    count: int
    examples: tuple[str, ...]
    """The ids of the jobs, or the names of what is concerned: 20 at most."""
    advice: str
    is_warning: bool = False

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.invariant}: {self.title} ({self.count}): {', '.join(self.examples)}{more}"


@dataclass(frozen=True, slots=True)
class Question:
    """One check. ``name`` is its file in ``storage/sql/doctor/``; ``params`` names its values."""

    invariant: str
    name: str
    title: str
    advice: str
    params: tuple[str, ...] = field(default=())
    is_warning: bool = False

    def ask(self, connection: Connection, values: Mapping[str, object]) -> Finding | None:
        """The finding, or None when all is well."""
        found = storage.ask(connection, self.name, **{name: values[name] for name in self.params})
        if not found.count:
            return None
        return Finding(
            invariant=self.invariant,
            name=self.name,
            title=self.title,
            count=found.count,
            examples=tuple(found.examples),
            advice=self.advice,
            is_warning=self.is_warning,
        )


SCHEMA_OBJECTS = Question(
    "SCHEMA",
    "missing_objects",
    "objects of the schema are missing, switched off or invalid",
    "Run `manage.py migrate awa`; what a hand has dropped or disabled since, take from its migration file.",
)
QUESTIONS = (
    Question(
        "I1",
        "in_both_tables",
        "jobs are in both tables",
        "Stop the workers, compare the two rows, and delete the one with the lower run_lease.",
    ),
    Question(
        "I1",
        "beyond_sequence",
        "jobs have an id that the sequence has yet to give",
        "Set the sequence beyond them: SELECT setval('awa.jobs_id_seq', <the highest id>).",
    ),
    Question(
        "I2",
        "wrong_home",
        "jobs are in the table that is not for their state",
        "Move each to the other table by DELETE ... RETURNING and INSERT in one statement.",
    ),
    Question(
        "I6",
        "terminal_shape",
        "ended jobs have no finalized_at, or others have one",
        "Set finalized_at = now() where the job has ended, else to null.",
    ),
    Question(
        "I6",
        "stray_lease_times",
        "jobs that do not run have a heartbeat_at or a deadline_at",
        "Set both columns to null.",
    ),
    Question(
        "I7",
        "running_shape",
        "running jobs lack what a claim sets (attempt, run_lease, attempted_at, heartbeat_at, worker)",
        "Start a worker: its rescue takes a run without a heartbeat back.",
    ),
    Question(
        "I7",
        "available_early",
        "available jobs are not due yet",
        "Set their run_at through awa.jobs: a job to come is then scheduled.",
    ),
    Question(
        "I8",
        "error_entries",
        "jobs have a history that cannot be: no objects, two entries of one lease, or of a lease to come",
        "Something beside this package has written errors: find it. The jobs themselves run on.",
    ),
    Question(
        "I13",
        "attempts_exceeded",
        "jobs have an impossible number of attempts",
        "Something beside this package has written attempt or max_attempts: find it, and correct them.",
    ),
    Question(
        "I15",
        "stale_running",
        "running jobs have been silent for longer than a rescue may take",
        "Is a worker running, and does one hold the duty `rescue` in awa.leaders? It takes them back.",
        ("silent_for",),
    ),
    Question(
        "I15",
        "overdue_running",
        "running jobs are past their deadline by more than a rescue may take",
        "Is a worker running, and does one hold the duty `rescue` in awa.leaders? It takes them back.",
        ("overdue_by",),
    ),
    Question(
        "I22",
        "claims_without_job",
        "unique claims belong to no job, and block their key",
        "Delete these rows of awa.job_unique_claims.",
    ),
    Question(
        "I22",
        "claims_not_held",
        "unique claims belong to jobs that do not hold that key",
        "Delete these rows of awa.job_unique_claims.",
    ),
    Question(
        "I22",
        "keys_not_claimed",
        "jobs should hold their unique key and have no claim",
        "Insert (unique_key, id) of the oldest such job of each key into awa.job_unique_claims; "
        "cancel its twins.",
    ),
    Question(
        "I22",
        "keys_claimed_twice",
        "unique keys are claimed more than once",
        "Cancel all but one job of each key, delete their claims, and create idx_awa_jobs_unique again.",
    ),
    Question(
        "I23",
        "double_holders",
        "several jobs hold one unique key",
        "Cancel all but one job of each key.",
    ),
    Question(
        "I29",
        "missing_duties",
        "leader duties have no row, so nobody can take them",
        "Insert them: INSERT INTO awa.leaders (duty) VALUES (...).",
    ),
    Question(
        "I30",
        "cron_twice",
        "several jobs were made for one fire time of a schedule",
        "Something beside this package has copied jobs or reset awa.cron_jobs.last_enqueued_at: find it.",
    ),
    Question(
        "I35",
        "broken_rows",
        "jobs have values that the tables refuse",
        "Correct the rows, then add the missing check of the table again (see its migration file).",
    ),
    Question(
        "I36", "negative_stats", "rollups have counted below zero", "Delete these rows of awa.queue_stats."
    ),
    Question(
        "W1",
        "pinned_snapshots",
        "old transactions or unused slots keep dead rows from being removed, so claims get slower",
        "End those transactions (pg_terminate_backend), or drop the slots.",
        ("older_than",),
        is_warning=True,
    ),
    Question(
        "W2",
        "not_vacuumable",
        "this role may not vacuum the tables of jobs, so under load only autovacuum does",
        "Make the worker's role a member of the owner's, or on PostgreSQL 17 and later grant it MAINTAIN.",
        is_warning=True,
    ),
    Question(
        "W3",
        "overdue_deferred",
        "deferred jobs are due and wait for their promotion",
        "Is a worker running, and does one hold the duty `promote` in awa.leaders?",
        ("promotion_overdue_by",),
        is_warning=True,
    ),
)


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
