"""Workers with what they run, duties with who does them, schedules with when they fire."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from awa_django.admin.base import distance, show_instant
from awa_django.admin.dashboard.format import duration, number
from awa_django.admin.words import SCHEDULE_STATES, WORKER_STATES
from awa_django.conf import get_settings
from awa_django.cron import next_fires
from awa_django.errors import ConfigurationError
from awa_django.storage.cron_jobs import ListedSchedule
from awa_django.storage.dashboard import Snapshot
from awa_django.storage.status import RunningJob, WorkerStatus

# Of what one child runs; the link leads to the rest.
JOBS_SHOWN = 5
FIRES_SHOWN = 3


def is_silent(worker: WorkerStatus) -> bool:
    """Whether it has not been heard of for STALE_AFTER; one that is gone by now is, too."""
    return worker.is_silent(get_settings().stale_after)


def worker_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The processes, and names that running jobs bear and no process does."""
    running: dict[str, list[RunningJob]] = defaultdict(list)
    for job in snapshot.processes.running:
        running[job.worker or ""].append(job)
    rows = [_worker(snapshot, worker, running.pop(worker.name, [])) for worker in snapshot.processes.workers]
    silent, tone = WORKER_STATES["silent"]
    rows += [
        {
            "name": name or _("unknown"),
            "health": silent,
            "health_tone": tone,
            **_jobs(snapshot, jobs),
        }
        for name, jobs in sorted(running.items())
    ]
    return rows


def duty_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {"duty": row.duty, "holder": row.holder, "epoch": number(row.epoch)}
        for row in snapshot.processes.leaders
    ]


def schedule_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "name": schedule.name,
            "expression": schedule.cron_expr,
            "zone": schedule.timezone,
            "state": SCHEDULE_STATES[schedule.state],
            "is_active": schedule.state == "active",
            "tone": "retryable" if schedule.paused else "unknown",
            "last": show_instant(schedule.last_fire_at),
            **_fires(schedule),
        }
        for schedule in snapshot.schedules
    ]


def _worker(snapshot: Snapshot, worker: WorkerStatus, jobs: list[RunningJob]) -> dict[str, Any]:
    health, tone = WORKER_STATES[worker.state(get_settings().stale_after)]
    return {
        "name": worker.name,
        "is_child": worker.supervisor is not None,
        "place": f"{worker.hostname}:{worker.pid}",
        "queues": ", ".join(worker.queues),
        "slots": worker.concurrency,
        "seen": show_instant(snapshot.now - timedelta(seconds=worker.unseen_seconds)),
        "health": health,
        "health_tone": tone,
        **_jobs(snapshot, jobs),
    }


def _jobs(snapshot: Snapshot, jobs: list[RunningJob]) -> dict[str, Any]:
    """What runs, longest first."""
    oldest_first = sorted(jobs, key=lambda job: job.started_at or snapshot.now)
    return {
        "running": number(len(jobs)),
        "more": number(max(len(jobs) - JOBS_SHOWN, 0)) if len(jobs) > JOBS_SHOWN else "",
        "jobs": [
            {
                "id": job.job_id,
                "kind": job.kind,
                "for": duration(max((snapshot.now - job.started_at).total_seconds(), 0.0))
                if job.started_at
                else "-",
            }
            for job in oldest_first[:JOBS_SHOWN]
        ],
    }


def _fires(schedule: ListedSchedule) -> dict[str, Any]:
    try:
        fires = _next_fires(schedule.cron_expr, schedule.timezone, schedule.now)
        zone = ZoneInfo(schedule.timezone)
    except (ConfigurationError, ValueError, OverflowError) as exc:  # a row that somebody wrote by hand
        return {"fires": [], "trouble": _("cannot be computed: %(problem)s") % {"problem": exc}}
    return {
        "fires": [
            {
                "at": f"{fire.astimezone(zone):%m-%d %H:%M:%S %Z}",
                "in": distance(fire),
                "iso": fire.isoformat(),
            }
            for fire in fires
        ]
    }


@lru_cache(maxsize=1_000)
def _next_fires(expr: str, timezone: str, now: datetime) -> list[datetime]:
    """Computed once a snapshot, however many people look."""
    return next_fires(expr, timezone, now, FIRES_SHOWN)
