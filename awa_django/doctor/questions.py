"""The questions that SQL can answer in one snapshot, each with what to do about an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from awa_django.storage import doctor as storage
from awa_django.storage._sql import Connection


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


class Reads(Enum):
    """How much of the tables an answer takes."""

    LITTLE = auto()
    """A small table, or what an index has of just these rows."""
    JOBS = auto()
    """Every job, each by itself: so a range of ids at a time."""
    CLAIMS = auto()
    """Every unique claim, a range of keys at a time."""
    EVERYTHING = auto()
    """All jobs at once, as it compares them with each other."""


# The values by which a statement is told the range that it is to read.
BOUNDS = {Reads.JOBS: ("after_id", "last_id"), Reads.CLAIMS: ("after_key", "last_key")}


@dataclass(frozen=True, slots=True)
class Question:
    """One check. ``name`` is its file in ``storage/sql/doctor/``; ``params`` names its values."""

    invariant: str
    name: str
    title: str
    advice: str
    params: tuple[str, ...] = field(default=())
    is_warning: bool = False
    reads: Reads = Reads.LITTLE

    def ask(self, connection: Connection, values: Mapping[str, object]) -> Finding | None:
        """The finding, or None when all is well."""
        wanted = (*self.params, *BOUNDS.get(self.reads, ()))
        found = storage.ask(connection, self.name, **{name: values[name] for name in wanted})
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
        reads=Reads.JOBS,
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
        reads=Reads.JOBS,
    ),
    Question(
        "I6",
        "terminal_shape",
        "ended jobs have no finalized_at, or others have one",
        "Set finalized_at = now() where the job has ended, else to null.",
        reads=Reads.JOBS,
    ),
    Question(
        "I6",
        "stray_lease_times",
        "jobs that do not run have a heartbeat_at or a deadline_at",
        "Set both columns to null.",
        reads=Reads.JOBS,
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
        reads=Reads.JOBS,
    ),
    Question(
        "I13",
        "attempts_exceeded",
        "jobs have an impossible number of attempts",
        "Something beside this package has written attempt or max_attempts: find it, and correct them.",
        reads=Reads.JOBS,
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
        reads=Reads.CLAIMS,
    ),
    Question(
        "I22",
        "claims_not_held",
        "unique claims belong to jobs that do not hold that key",
        "Delete these rows of awa.job_unique_claims.",
        reads=Reads.CLAIMS,
    ),
    Question(
        "I22",
        "keys_not_claimed",
        "jobs should hold their unique key and have no claim",
        "Insert (unique_key, id) of the oldest such job of each key into awa.job_unique_claims; "
        "cancel its twins.",
        reads=Reads.JOBS,
    ),
    Question(
        "I22",
        "keys_claimed_twice",
        "unique keys are claimed more than once",
        "Cancel all but one job of each key, delete their claims, and create idx_awa_jobs_unique again.",
        reads=Reads.CLAIMS,
    ),
    Question(
        "I23",
        "double_holders",
        "several jobs hold one unique key",
        "Cancel all but one job of each key.",
        reads=Reads.EVERYTHING,
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
        reads=Reads.EVERYTHING,
    ),
    Question(
        "I35",
        "broken_rows",
        "jobs have values that the tables refuse",
        "Correct the rows, then add the missing check of the table again (see its migration file).",
        reads=Reads.JOBS,
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
        "this role, if workers use it, may not vacuum the tables of jobs: under load only autovacuum does",
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
    Question(
        "W4",
        "unvacuumed_tables",
        "tables hold many dead rows that no vacuum has removed, so claims and promotion get slower",
        "Does a worker hold the duty `vacuum` in awa.leaders, and is autovacuum on? What keeps dead rows "
        "from being removed is said by W1; else VACUUM (VERBOSE) these tables by hand and read what it says.",
        ("dead_at_least", "unvacuumed_for"),
        is_warning=True,
    ),
    Question(
        "W5",
        "unused_indexes",
        "indexes that this package did not make are never read, and each is paid for with every job",
        "Drop them (DROP INDEX CONCURRENTLY), or keep those that a query of yours will need.",
        is_warning=True,
    ),
)
