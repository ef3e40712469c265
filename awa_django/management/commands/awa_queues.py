"""``manage.py awa_queues``: what is in each queue; pause and resume one."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timedelta

from django.core.management.base import CommandError
from django.db import connections

from awa_django import operations
from awa_django.management import arguments, status
from awa_django.management.base import OperatorCommand
from awa_django.management.commands.awa_status import show_queues
from awa_django.management.output import instant
from awa_django.reading import bounded
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_queues

# Names that are looked through for the one that is paused.
NAMES_AT_MOST = 10_000


class Command(OperatorCommand):
    help = (
        "Lists the queues; pauses and resumes one. "
        "Exit codes: 0 done (also where it was so already), 1 refused, 3 the database could not be asked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        verbs = self.take_verbs(parser)
        self.add_verb(verbs, "list", "what waits, runs and failed in each queue")
        pause = self.add_verb(verbs, "pause", "stop claims from a queue; jobs that run go on")
        pause.add_argument("name")
        until = pause.add_mutually_exclusive_group()
        until.add_argument(
            "--for",
            dest="duration",
            type=arguments.duration,
            metavar="DURATION",
            help="resume by itself: 90, 15m, 2h",
        )
        until.add_argument(
            "--until", type=arguments.instant, metavar="INSTANT", help="resume by itself: 2026-01-31T18:30"
        )
        self.add_verb(verbs, "resume", "let claims from a queue go on").add_argument("name")

    def perform(self) -> int:
        getattr(self, f"_{self.options['verb']}")()
        return 0

    def _list(self) -> None:
        with bounded(self.alias, longest=status.PATIENCE) as connection:
            cap, queues = status.ask_queues(connection)
        if self.options["json"]:
            self.out.document([status.queue_document(queue, cap=cap) for queue in queues])
        else:
            show_queues(self, queues, cap)

    def _pause(self) -> None:
        name, until = self.options["name"], self._until()
        is_known = name in known_queues(connections[self.alias], limit=NAMES_AT_MOST)
        try:
            result = operations.pause_queue(name, by=arguments.user(), until=until, using=self.alias)
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        if not is_known:
            self.note(f"no job, worker or schedule knows a queue {name!r}")
        end = f" until {instant(until)}" if until else " until it is resumed"
        self._say(
            result, f"{name} is paused{end}" if result.changed else f"{name} was paused so already", until
        )

    def _resume(self) -> None:
        name = self.options["name"]
        try:
            result = operations.resume_queue(name, using=self.alias)
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        self._say(result, f"{name} is resumed" if result.changed else f"{name} was not paused", None)

    def _until(self) -> datetime | None:
        """When the pause ends, by the database's clock; an instant that has passed is refused."""
        now = database_now(connections[self.alias])
        duration: timedelta | None = self.options["duration"]
        if duration is not None:
            return now + duration
        until: datetime | None = self.options["until"]
        if until is not None and until <= now:
            raise CommandError(f"--until {instant(until)} has passed")
        return until

    def _say(self, result: operations.QueueResult, text: str, until: datetime | None) -> None:
        document = {
            "queue": result.queue,
            "paused": result.paused,
            "changed": result.changed,
            "paused_until": until,
        }
        self.answer(document, text, "good" if result.changed else "")
