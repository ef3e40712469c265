"""An operator's verbs on schedules: list them, pause, resume and run one now; and when one fires next.

They work on Django's connection, inside whatever transaction is open there.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connections, transaction

from awa_django import cron
from awa_django.codec import clean_text
from awa_django.conf import LONGEST_NAME, get_settings
from awa_django.enqueue.single import MOST_TRIES, rival_as_unique_conflict, unique_conflict
from awa_django.errors import ScheduleNotFound
from awa_django.fire_key import FireKey
from awa_django.storage import cron_jobs as storage
from awa_django.storage.cron_jobs import ListedSchedule
from awa_django.storage.insert import find_unique_holders
from awa_django.storage.wake import wake

FIRES_SHOWN = 10


def list_schedules(*, using: str | None = None) -> list[ListedSchedule]:
    """All schedules as they stand in the database, by name."""
    return storage.list_cron_jobs(_connection(using))


def find(name: str, *, using: str | None = None) -> ListedSchedule:
    """One schedule as it stands in the database. Raises: ScheduleNotFound."""
    found = storage.list_cron_jobs(_connection(using), _known(name))
    if not found:
        raise ScheduleNotFound(name)
    return found[0]


def next_fires(name: str, count: int = FIRES_SHOWN, *, using: str | None = None) -> list[datetime]:
    """The next fire times of a schedule by the database's clock, in UTC; also while it is paused.

    Raises: ScheduleNotFound; ConfigurationError when its row has an expression or zone that is wrong.
    """
    found = find(name, using=using)
    return cron.next_fires(found.cron_expr, found.timezone, found.now, count)


def pause(name: str, *, by: str | None = None, using: str | None = None) -> bool:
    """Stop the fires of a schedule until it is resumed; whether that changed anything.

    Raises: ScheduleNotFound.
    """
    changed = storage.pause_cron_job(_connection(using), _known(name), paused_by=_person(by))
    if changed is None:
        raise ScheduleNotFound(name)
    return changed


def resume(name: str, *, using: str | None = None) -> bool:
    """Let a schedule fire again, from now on: no job is made for the time of the pause.

    Whether that changed anything. Raises: ScheduleNotFound.
    """
    changed = storage.resume_cron_job(_connection(using), _known(name))
    if changed is None:
        raise ScheduleNotFound(name)
    return changed


def run_now(name: str, *, by: str | None = None, using: str | None = None) -> int:
    """Enqueue one job of a schedule now, beside its fires and though it may be paused; the job's id.

    Raises: ScheduleNotFound; UniqueConflict when another job holds the unique key of the schedule's jobs,
    in which case nothing is enqueued.
    """
    connection = _connection(using)
    with transaction.atomic(using=connection.alias):
        schedule = find(name, using=using)
        if schedule.unique is None:
            made = storage.run_cron_job(connection, name, asked_by=_person(by))
            if made is None:
                raise ScheduleNotFound(name)
        else:
            made = _run_unless_held(connection, schedule, by)
        job_id, queue = made
        wake(connection, [queue])
    return job_id


def _run_unless_held(connection: Any, schedule: ListedSchedule, by: str | None) -> tuple[int, str]:
    assert schedule.unique is not None
    fire_key = FireKey.from_json(schedule.unique)
    key = fire_key.at(schedule.now)
    for _ in range(MOST_TRIES):
        with rival_as_unique_conflict(schedule.kind):
            made = storage.run_unique_cron_job(
                connection,
                schedule.name,
                asked_by=_person(by),
                unique_key=key,
                unique_states=fire_key.mask,
            )
        if made is None:
            raise ScheduleNotFound(schedule.name)
        job_id, queue = made
        if job_id is not None:
            return job_id, queue
        # In a second statement: the first does not see what a rival committed while it waited.
        holder_id = find_unique_holders(connection, [key]).get(key)
        if holder_id is not None:
            raise unique_conflict(schedule.kind, holder_id)
    raise unique_conflict(schedule.kind, None)


def _connection(using: str | None) -> Any:
    return connections[using or get_settings().database]


def _known(name: str) -> str:
    if "\0" in name:  # which the database refuses to look for
        raise ScheduleNotFound(name)
    return name


def _person(by: str | None) -> str | None:
    return None if by is None else clean_text(by, LONGEST_NAME)
