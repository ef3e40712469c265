"""CronScheduler: one job for each fire time of each schedule, whoever leads."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, assert_never, cast

import psycopg

from awa_django import failpoints, registry
from awa_django.cron import Missed, due_fires, next_fires
from awa_django.errors import ConfigurationError
from awa_django.fire_key import FireKey
from awa_django.handler import PeriodicJob
from awa_django.logs import get_logger
from awa_django.storage import cron_jobs as storage
from awa_django.storage.cron_jobs import DECLARED_WITHIN, Made, Schedule
from awa_django.storage.wake import wake
from awa_django.worker.database import PsycopgConnection, Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

logger = get_logger(__name__)

# A schedule that is added, changed or resumed is seen after this at most.
LONGEST_WAIT = timedelta(seconds=5)
# A fire that is late by no more than this is not missed: a leader may just have died.
PUNCTUAL = timedelta(seconds=60)
# Seconds between two times that a worker says which schedules its code declares: four in DECLARED_WITHIN.
CONFIRM_EVERY = 20.0
# What no worker declares any more is deleted after this. It stops firing much earlier.
KEEP_UNDECLARED = timedelta(minutes=10)
# Seconds to the next look at a fire whose unique key somebody has taken in an open transaction.
UNDECIDED_WAIT = 1.0
# An invalid schedule is logged once in so many looks: five minutes' worth.
LOG_EVERY = 60


class _Plan(NamedTuple):
    """When a schedule is due next, as computed from what its row says."""

    row: tuple[str, str, datetime]
    next_at: datetime | None


class CronScheduler(Duty):
    """Decides by the database's clock; what was missed while nobody led follows the schedule's policy.

    Every worker confirms the schedules of its code, whether it leads or not.
    """

    name = "cron scheduler"
    duty = "cron"
    interval = LONGEST_WAIT

    def __init__(self, session: Session, leader: Leader) -> None:
        super().__init__(session, leader)
        self._invalid: dict[str, int] = {}
        self._plans: dict[str, _Plan] = {}
        self._confirmed_at = time.monotonic()  # they are written at the start
        self._leading_since: float | None = None

    def tick(self) -> float | None:
        now = time.monotonic()
        if now - self._confirmed_at >= CONFIRM_EVERY:
            self._confirm()
            self._confirmed_at = now
        if not self.is_leading:
            self._leading_since = None
        return super().tick()

    def perform(self) -> float | None:
        failpoints.hit("in_cron")
        wait = LONGEST_WAIT.total_seconds()
        with self.session.use() as connection:
            schedules = storage.cron_jobs(connection)
        self._plans = {s.name: self._plans[s.name] for s in schedules if s.name in self._plans}
        for schedule in schedules:
            if not self.is_leading:
                break
            try:
                next_at = self._next_at(schedule)
                if next_at is not None and next_at <= schedule.now:
                    with self.session.use() as connection:
                        next_at = self._fire(connection, schedule)
            except (ConfigurationError, psycopg.DatabaseError) as exc:
                if schedule.unique is not None and isinstance(exc, psycopg.errors.LockNotAvailable):
                    wait = min(wait, UNDECIDED_WAIT)
                    continue
                if isinstance(exc, psycopg.OperationalError):
                    raise
                self._log_invalid(schedule, exc)
                continue
            self._invalid.pop(schedule.name, None)
            if next_at is not None:
                wait = min(wait, (next_at - schedule.now).total_seconds())
        self._remove_undeclared()
        return max(wait, 0.01)

    def _next_at(self, schedule: Schedule) -> datetime | None:
        """The first fire that is not done; computed anew only when the row has changed."""
        row = (schedule.cron_expr, schedule.timezone, schedule.since)
        plan = self._plans.get(schedule.name)
        if plan is None or plan.row != row:
            fires = next_fires(*row, 1)
            plan = self._plans[schedule.name] = _Plan(row, fires[0] if fires else None)
        return plan.next_at

    def _fire(self, connection: PsycopgConnection, schedule: Schedule) -> datetime | None:
        """Make the jobs that are due, as the policy says; when the next one is."""
        missed = cast("Missed", schedule.missed)
        due = due_fires(
            schedule.cron_expr,
            schedule.timezone,
            schedule.since,
            schedule.now,
            schedule.catch_up_limit if missed == "catch_up" else 1,
        )
        fires = due.fires
        until = fires[-1]
        match missed:
            case "coalesce" | "catch_up":
                pass
            case "skip":
                fires = [fire for fire in fires if schedule.now - fire <= PUNCTUAL]
            case _:
                assert_never(missed)
        skipped_count = due.total - len(fires)
        made = _make(connection, schedule, fires, until=until, skipped_count=skipped_count)
        if made:
            ids = ", ".join(str(job_id) for job_id, _ in made)
            logger.info("schedule %s fired for %s: job %s", schedule.name, until, ids)
            wake(connection, [made[0][1]])
        if skipped_count:
            logger.warning(
                "schedule %s: no jobs for %d of its fires (%s)", schedule.name, skipped_count, missed
            )
        following = next_fires(schedule.cron_expr, schedule.timezone, schedule.now, 1)
        return following[0] if following else None

    def _confirm(self) -> None:
        """Say which schedules this worker's code declares, and write those anew whose rows are gone."""
        declared = {periodic.name: periodic for periodic in registry.periodic_jobs()}
        if not declared:
            return
        with self.session.use() as connection:
            for name in sorted(declared.keys() - storage.confirm_cron_jobs(connection, sorted(declared))):
                declare_schedule(connection, declared[name])

    def _remove_undeclared(self) -> None:
        """Not before every worker that lives has had the time to confirm its schedules."""
        now = time.monotonic()
        if self._leading_since is None:
            self._leading_since = now
        if now - self._leading_since < DECLARED_WITHIN.total_seconds():
            return
        self._leading_since = now  # so once in a while only
        with self.session.use() as connection:
            for name in storage.remove_cron_jobs(connection, undeclared_for=KEEP_UNDECLARED):
                logger.info("schedule %s is removed: no worker declares it any more", name)

    def _log_invalid(self, schedule: Schedule, exc: Exception) -> None:
        seen = self._invalid.get(schedule.name, 0)
        if seen % LOG_EVERY == 0:
            logger.error("schedule %r is left out: %s", schedule.name, exc)
        self._invalid[schedule.name] = seen + 1


def _make(
    connection: PsycopgConnection,
    schedule: Schedule,
    fires: Sequence[datetime],
    *,
    until: datetime,
    skipped_count: int,
) -> Made:
    """The jobs of these fires; says which found their unique key held."""
    since = schedule.since
    if schedule.unique is None:
        return storage.fire_cron_job(
            connection, schedule.name, fires, until=until, since=since, skipped_count=skipped_count
        )
    key = FireKey.from_json(schedule.unique)
    fired = storage.fire_unique_cron_job(
        connection,
        schedule.name,
        fires,
        until=until,
        since=since,
        skipped_count=skipped_count,
        unique=schedule.unique,
        unique_keys=[key.at(fire) for fire in fires],
        unique_states=key.mask,
    )
    for fire in fired:
        if fire.job_id is None:
            holder = "another job" if fire.holder_id is None else f"job {fire.holder_id}"
            logger.info(
                "schedule %s: no job for %s, as %s holds its unique key", schedule.name, fire.fire_at, holder
            )
    return [(fire.job_id, fire.queue) for fire in fired if fire.job_id is not None]


def declare_schedule(connection: PsycopgConnection, periodic: PeriodicJob) -> None:
    """Write one schedule of the code."""
    storage.sync_cron_job(
        connection,
        name=periodic.name,
        cron_expr=periodic.cron_expr,
        timezone=periodic.timezone,
        kind=periodic.kind,
        queue=periodic.queue,
        args=periodic.encode(),
        priority=periodic.priority,
        max_attempts=periodic.max_attempts,
        tags=periodic.tags,
        metadata=json.dumps(periodic.stored_metadata()),
        missed=periodic.missed,
        catch_up_limit=periodic.catch_up_limit,
    )
