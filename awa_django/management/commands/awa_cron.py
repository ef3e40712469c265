"""``manage.py awa_cron``: look at the schedules, pause, resume and run them."""

from __future__ import annotations

import getpass
import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError, CommandParser

from awa_django import cron, schedules
from awa_django.errors import AwaError, ConfigurationError
from awa_django.storage.cron_jobs import ListedSchedule


class Command(BaseCommand):
    help = "Lists the schedules of periodic jobs and when they fire next; pauses, resumes and runs them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", help="the alias to work on; the queue's own by default")
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verb = verbs.add_parser("list", help="all schedules, each with its next fire")
        verb.add_argument("--json", action="store_true", help="print a JSON array")
        verb = verbs.add_parser("next", help="the next fire times of a schedule")
        verb.add_argument("name")
        verb.add_argument("--count", type=int, default=schedules.FIRES_SHOWN, help="how many (default: 10)")
        for name, text in (
            ("run", "enqueue one job of a schedule now"),
            ("pause", "stop the fires of a schedule"),
            ("resume", "let a schedule fire again, from now on"),
        ):
            verbs.add_parser(name, help=text).add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options, options["database"])
        except AwaError as exc:
            raise CommandError(str(exc)) from exc

    def _list(self, options: dict[str, Any], using: str | None) -> None:
        rows = [_row(schedule) for schedule in schedules.list_schedules(using=using)]
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=2))
            return
        for row in rows:
            self.stdout.write(
                f"{row['name']}: {row['cron']} {row['timezone']}, {row['kind']}, "
                f"{row['state']}, next {row['next']}, {row['skipped']} skipped"
            )
        if not rows:
            self.stdout.write("There is no schedule.")

    def _next(self, options: dict[str, Any], using: str | None) -> None:
        if options["count"] < 1:
            raise CommandError("--count must be 1 or more")
        schedule = schedules.find(options["name"], using=using)
        for fire in cron.next_fires(schedule.cron_expr, schedule.timezone, schedule.now, options["count"]):
            self.stdout.write(_shown(fire, schedule.timezone))

    def _run(self, options: dict[str, Any], using: str | None) -> None:
        job_id = schedules.run_now(options["name"], by=_user(), using=using)
        self.stdout.write(f"job {job_id} is enqueued")

    def _pause(self, options: dict[str, Any], using: str | None) -> None:
        changed = schedules.pause(options["name"], by=_user(), using=using)
        self.stdout.write("paused" if changed else "was paused already")

    def _resume(self, options: dict[str, Any], using: str | None) -> None:
        changed = schedules.resume(options["name"], using=using)
        self.stdout.write("resumed" if changed else "was not paused")


def _row(schedule: ListedSchedule) -> dict[str, Any]:
    try:
        fires = cron.next_fires(schedule.cron_expr, schedule.timezone, schedule.now, 1)
        following = _shown(fires[0], schedule.timezone) if fires else "never"
    except ConfigurationError as exc:  # of a row that somebody wrote by hand
        following = f"cannot be computed: {exc}"
    return {
        "name": schedule.name,
        "cron": schedule.cron_expr,
        "timezone": schedule.timezone,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "missed": schedule.missed,
        "state": schedule.state,
        "paused_by": schedule.paused_by,
        "next": following,
        "skipped": schedule.skipped_count,
    }


def _shown(fire: datetime, timezone: str) -> str:
    return f"{fire.astimezone(ZoneInfo(timezone)).isoformat(sep=' ')} ({fire:%Y-%m-%d %H:%M:%S} UTC)"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under an id without a name
        return None
