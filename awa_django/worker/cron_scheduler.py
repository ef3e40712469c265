"""CronScheduler: one job for each fire time of each schedule, whoever leads."""

from __future__ import annotations

import logging
from datetime import timedelta

import psycopg

from awa_django import failpoints
from awa_django.cron import latest_fire, next_fires
from awa_django.errors import ConfigurationError
from awa_django.storage import cron_jobs as storage
from awa_django.storage.cron_jobs import Schedule
from awa_django.storage.wake import wake
from awa_django.worker.database import PsycopgConnection, Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

logger = logging.getLogger(__name__)

# A schedule that is added, changed or resumed is seen after this at most.
LONGEST_WAIT = timedelta(seconds=5)
# An invalid schedule is logged once in so many looks: five minutes' worth.
LOG_EVERY = 60


class CronScheduler(Duty):
    """Decides by the database's clock. Fires missed while nobody led are coalesced into the newest."""

    name = "cron scheduler"
    duty = "cron"
    interval = LONGEST_WAIT

    def __init__(self, session: Session, leader: Leader) -> None:
        super().__init__(session, leader)
        self._invalid: dict[str, int] = {}

    def perform(self) -> float | None:
        failpoints.hit("in_cron")
        wait = LONGEST_WAIT.total_seconds()
        with self.session.use() as connection:
            schedules = storage.cron_jobs(connection)
        for schedule in schedules:
            if not self.is_leading:
                break
            try:
                with self.session.use() as connection:
                    self._fire(connection, schedule)
                following = next_fires(schedule.cron_expr, schedule.timezone, schedule.now, 1)
            except (ConfigurationError, psycopg.IntegrityError, psycopg.DataError) as exc:
                self._log_invalid(schedule, exc)
                continue
            self._invalid.pop(schedule.name, None)
            if following:
                wait = min(wait, (following[0] - schedule.now).total_seconds())
        return max(wait, 0.01)

    def _fire(self, connection: PsycopgConnection, schedule: Schedule) -> None:
        fire_at = latest_fire(schedule.cron_expr, schedule.timezone, schedule.since, schedule.now)
        if fire_at is None:
            return
        made = storage.fire_cron_job(connection, schedule.name, fire_at)
        if made is not None:
            job_id, queue = made
            logger.info("schedule %s fired for %s: job %s", schedule.name, fire_at, job_id)
            wake(connection, [queue])

    def _log_invalid(self, schedule: Schedule, exc: Exception) -> None:
        seen = self._invalid.get(schedule.name, 0)
        if seen % LOG_EVERY == 0:
            logger.error("schedule %r is left out: %s", schedule.name, exc)
        self._invalid[schedule.name] = seen + 1
