"""Settle: write outcomes in batches; a row that cannot be written ends alone, in a named way."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import psycopg
from psycopg.pq import TransactionStatus

from awa_django.logs import get_logger
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.locked import locked_runs
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker import error_entry, verdict
from awa_django.worker.database import PsycopgConnection, is_connection_error, short_lock_wait

logger = get_logger(__name__)

# A statement of 1,000 rows is past the point where more rows make it cheaper per row.
LARGEST_BATCH = 1_000
# Nothing is wrong with the row: somebody else was in the way.
_PASSING = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
)
# Nothing is wrong with any row: the server has no room, and all of it is to be sent again.
_SERVERS_OWN = (
    psycopg.errors.DiskFull,
    psycopg.errors.ConfigurationLimitExceeded,
    psycopg.errors.IoError,
)


@dataclass(slots=True)
class Settlement:
    """What became of a batch. An outcome in neither list is stale: its lease is over."""

    done: set[int] = field(default_factory=set)
    """Ids of the jobs whose outcome is written."""
    superseded: set[int] = field(default_factory=set)
    """Those of them that ended otherwise: another job holds their unique key."""
    instead: dict[int, Ending] = field(default_factory=dict)
    """How those of them ended whose own outcome the database refused."""
    released_queues: set[str] = field(default_factory=set)
    """Queues in which jobs became available again."""
    blocked: list[Outcome] = field(default_factory=list)
    """Not written because somebody else was in the way (a lock, a timeout): try again."""


def settle(
    connection: PsycopgConnection, outcomes: Sequence[Outcome], *, worker: str, is_patient: bool = True
) -> Settlement:
    """Write the outcomes, each kind of them in one statement.

    Without patience no statement waits for a lock for long: for what was blocked before.

    Raises: an error of the connection or of the server itself; then any part may or may not be written.
    """
    settlement = Settlement()
    for group in _grouped(outcomes):
        for start in range(0, len(group), LARGEST_BATCH):
            batch = group[start : start + LARGEST_BATCH]
            _write_or_split(connection, batch, worker, settlement, is_patient=is_patient)
    return settlement


def _grouped(outcomes: Sequence[Outcome]) -> list[list[Any]]:
    groups: defaultdict[object, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        is_deletion = type(outcome) is Completion and outcome.delete
        groups["delete" if is_deletion else type(outcome)].append(outcome)
    return list(groups.values())


def _write_or_split(
    connection: PsycopgConnection,
    group: list[Any],
    worker: str,
    settlement: Settlement,
    *,
    is_patient: bool = True,
) -> None:
    """Write the group, or its halves. Once somebody was in the way, nobody is waited for any more."""
    locked: set[Attempt] = set()
    try:
        if is_patient:
            with _savepoint(connection):
                _write(connection, group, settlement)
        else:
            with short_lock_wait(connection):
                locked = locked_runs(connection, [outcome.attempt for outcome in group])
                if free := [outcome for outcome in group if outcome.attempt not in locked]:
                    _write(connection, free, settlement)
    except psycopg.Error as exc:
        if is_connection_error(exc) or isinstance(exc, _SERVERS_OWN):
            raise
        if is_patient and isinstance(exc, _PASSING):
            _write_or_split(connection, group, worker, settlement, is_patient=False)
        elif len(group) > 1:
            middle = len(group) // 2
            _write_or_split(connection, group[:middle], worker, settlement, is_patient=is_patient)
            _write_or_split(connection, group[middle:], worker, settlement, is_patient=is_patient)
        elif isinstance(exc, _PASSING):
            settlement.blocked.extend(group)
        else:
            _write_substitute(connection, group[0], exc, worker, settlement)
    else:
        settlement.blocked.extend(outcome for outcome in group if outcome.attempt in locked)


def _write(connection: PsycopgConnection, group: list[Any], settlement: Settlement) -> None:
    match group[0]:
        case Completion(delete=True):
            settlement.done |= finalize.complete_and_delete(connection, [each.attempt for each in group])
        case Completion():
            settlement.done |= finalize.complete(connection, group)
        case Deferral():
            settlement.done |= finalize.defer(connection, group)
        case Ending():
            settlement.done |= finalize.finish(connection, group)
        case Release():
            released = finalize.release(connection, [each.attempt for each in group])
            settlement.done |= set(released)
            settlement.released_queues |= set(released.values())
        case never:
            assert_never(never)


def _write_substitute(
    connection: PsycopgConnection, outcome: Outcome, exc: psycopg.Error, worker: str, settlement: Settlement
) -> None:
    """The database refuses this outcome of this row: end the job in the nearest way it takes."""
    attempt = outcome.attempt
    what = verdict.describe(outcome)
    logger.warning("job %s could not be finished as %s: %s", attempt.job_id, what, exc, extra=_extra(attempt))
    if isinstance(exc, psycopg.errors.UniqueViolation):
        note = error_entry.superseded(attempt.run_lease, worker=worker, what=f"it was to be {what}")
        states = [JobState.CANCELLED, JobState.FAILED]
    else:
        note = error_entry.unwritable(attempt.run_lease, worker=worker, what=what, error=str(exc))
        states = [JobState.FAILED, JobState.CANCELLED]
    endings = [Ending(attempt, state, note) for state in states]
    for ending, write in ((endings[0], _finish), (endings[1], _finish), (endings[0], finalize.surrender)):
        try:
            with _savepoint(connection):
                ended = write(connection, ending)
            settlement.done |= ended
            settlement.instead |= dict.fromkeys(ended, ending)
            if isinstance(exc, psycopg.errors.UniqueViolation):
                settlement.superseded |= ended
            return
        except psycopg.Error as again:
            if is_connection_error(again) or isinstance(again, _SERVERS_OWN):
                raise
            logger.error(
                "job %s could not be ended as %s either: %s",
                attempt.job_id,
                ending.state,
                again,
                extra=_extra(attempt),
            )
    settlement.blocked.append(outcome)


def _finish(connection: PsycopgConnection, ending: Ending) -> set[int]:
    return finalize.finish(connection, [ending])


def _savepoint(connection: PsycopgConnection) -> contextlib.AbstractContextManager[object]:
    """A savepoint inside an open transaction; outside of one a statement is atomic by itself."""
    if connection.info.transaction_status == TransactionStatus.IDLE and connection.autocommit:
        return contextlib.nullcontext()
    return connection.transaction()


def _extra(attempt: Attempt) -> dict[str, int]:
    return {"job_id": attempt.job_id, "run_lease": attempt.run_lease}
