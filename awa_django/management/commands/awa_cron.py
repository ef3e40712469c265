"""``manage.py awa_cron``: look at the schedules, pause, resume and run them."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from awa_django import cron, schedules
from awa_django.errors import ConfigurationError, UniqueConflict
from awa_django.management import arguments
from awa_django.management.base import OperatorCommand
from awa_django.management.output import Cell, number
from awa_django.storage.cron_jobs import ListedSchedule

_STYLES: dict[str, Any] = {"active": "good", "paused": "warning", "undeclared": "dim"}


class Command(OperatorCommand):
    help = (
        "Lists the schedules of periodic jobs and when they fire next; pauses, resumes and runs them. "
        "Exit codes: 0 done (also where it was so already), 1 no such schedule, "
        "3 the database could not be asked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        verbs = self.take_verbs(parser)
        self.add_verb(verbs, "list", "all schedules, each with its next fire")
        verb = self.add_verb(verbs, "next", "the next fire times of a schedule")
        verb.add_argument("name")
        verb.add_argument(
            "--count",
            type=arguments.positive,
            default=schedules.FIRES_SHOWN,
            metavar="N",
            help="how many (default: 10)",
        )
        for name, text in (
            ("run", "enqueue one job of a schedule now"),
            ("pause", "stop the fires of a schedule"),
            ("resume", "let a schedule fire again, from now on"),
        ):
            self.add_verb(verbs, name, text).add_argument("name")

    def perform(self) -> int:
        getattr(self, f"_{self.options['verb']}")()
        return 0

    def _list(self) -> None:
        rows = [_row(schedule) for schedule in schedules.list_schedules(using=self.alias)]
        if self.options["json"]:
            self.out.document(rows)
            return
        self.out.table(
            ("NAME", "EXPRESSION", "ZONE", "KIND", "QUEUE", "STATE", "NEXT", "SKIPPED"),
            [
                (
                    row["name"],
                    row["cron"],
                    row["timezone"],
                    row["kind"],
                    row["queue"],
                    Cell(row["state"], _STYLES[row["state"]]),
                    _next(row),
                    number(row["skipped_count"]),
                )
                for row in rows
            ],
            title="Schedules",
        )

    def _next(self) -> None:
        schedule = schedules.find(self.options["name"], using=self.alias)
        count = self.options["count"]
        fires = cron.next_fires(schedule.cron_expr, schedule.timezone, schedule.now, count)
        if self.options["json"]:
            self.out.document({"name": schedule.name, "timezone": schedule.timezone, "fires": fires})
            return
        for fire in fires:
            self.out.line(_shown(fire, schedule.timezone))

    def _run(self) -> None:
        try:
            job_id = schedules.run_now(self.options["name"], by=arguments.user(), using=self.alias)
        except UniqueConflict as exc:
            self._say({"job_id": None, "holder_id": exc.holder_id}, f"nothing is enqueued: {exc}")
            return
        self._say({"job_id": job_id}, f"job {job_id} is enqueued")

    def _pause(self) -> None:
        changed = schedules.pause(self.options["name"], by=arguments.user(), using=self.alias)
        name = self.options["name"]
        text = f"{name} is paused" if changed else f"{name} was paused already"
        self._say({"paused": True, "changed": changed}, text)

    def _resume(self) -> None:
        changed = schedules.resume(self.options["name"], using=self.alias)
        name = self.options["name"]
        text = f"{name} is resumed" if changed else f"{name} was not paused"
        self._say({"paused": False, "changed": changed}, text)

    def _say(self, document: dict[str, Any], text: str) -> None:
        self.answer({"name": self.options["name"], **document}, text)


def _row(schedule: ListedSchedule) -> dict[str, Any]:
    following, error = None, None
    try:
        fires = cron.next_fires(schedule.cron_expr, schedule.timezone, schedule.now, 1)
        following = fires[0] if fires else None
    except ConfigurationError as exc:  # of a row that somebody wrote by hand
        error = str(exc)
    return {
        "name": schedule.name,
        "cron": schedule.cron_expr,
        "timezone": schedule.timezone,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "missed": schedule.missed,
        "state": schedule.state,
        "paused_by": schedule.paused_by,
        "next_at": following,
        "error": error,
        "skipped_count": schedule.skipped_count,
    }


def _next(row: dict[str, Any]) -> Cell | str:
    if row["error"] is not None:
        return Cell(f"cannot be computed: {row['error']}", "bad")
    return "never" if row["next_at"] is None else _shown(row["next_at"], row["timezone"])


def _shown(fire: datetime, timezone: str) -> str:
    local = fire.astimezone(ZoneInfo(timezone)).isoformat(sep=" ")
    return f"{local} ({fire.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC)"
