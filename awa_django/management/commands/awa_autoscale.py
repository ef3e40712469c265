"""``manage.py awa_autoscale``: how many workers the queues want."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

from awa_django import registry, scaling
from awa_django.conf import get_settings
from awa_django.management import arguments
from awa_django.management.base import OperatorCommand
from awa_django.management.output import duration, number
from awa_django.scaling import Wanted
from awa_django.storage.queues import known_queues

NAMES_AT_MOST = 10_000


class Command(OperatorCommand):
    help = (
        "Tells how many workers the queues want, so that what waits ends within the target. It starts none. "
        "Exit code 3: the database could not be asked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--queues", metavar="NAME,...", help="the queues that one sort of worker serves; all by default"
        )
        parser.add_argument(
            "--target",
            type=arguments.duration,
            metavar="DURATION",
            help="within which what waits should end (30, 5m); AWA['DRAIN_TARGET'] by default",
        )
        parser.add_argument(
            "--slots",
            type=arguments.positive,
            metavar="N",
            help="jobs that one worker runs at once; measured at those that live by default",
        )

    def perform(self) -> int:
        target = self.options["target"] or get_settings().drain_target
        names = None
        if self.options["queues"]:
            names = [name.strip() for name in self.options["queues"].split(",") if name.strip()]
            self._note_unknown(names)
        found = scaling.ask(self.alias, queues=names, target=target, slots_per_worker=self.options["slots"])
        total = _Total(found)
        if self.options["json"]:
            self.out.document(_document(found, total, target))
            return 0
        self.out.table(
            ("QUEUE", "WAITING", "RUNNING", "MEAN RUN", "SLOTS", "WORKERS"),
            [
                (
                    each.queue,
                    number(each.waiting),
                    number(each.running),
                    duration(each.mean_seconds),
                    number(each.slots),
                    number(each.workers),
                )
                for each in found
            ],
        )
        workers = f"{total.workers} {'worker' if total.workers == 1 else 'workers'}"
        self.out.line(f"together {workers} of {total.slots_per_worker} slots")
        return 0

    def _note_unknown(self, names: list[str]) -> None:
        """A name that is mistyped wants no worker, now and for ever."""
        known = known_queues(connections[self.alias], limit=NAMES_AT_MOST)
        for name in sorted(set(names) - {"default", *get_settings().queues, *registry.queues(), *known}):
            self.note(f"no job, worker or schedule knows a queue {name!r}")


class _Total:
    """What all the queues want together, of workers as small as the smallest."""

    def __init__(self, found: Sequence[Wanted]) -> None:
        self.slots = scaling.rounded(sum(each.load for each in found))
        self.slots_per_worker = min((each.slots_per_worker for each in found), default=scaling.DEFAULT_SLOTS)
        self.workers = math.ceil(self.slots / self.slots_per_worker)


def _document(found: Sequence[Wanted], total: _Total, target: timedelta) -> dict[str, Any]:
    return {
        "target_seconds": target.total_seconds(),
        "slots": total.slots,
        "slots_per_worker": total.slots_per_worker,
        "workers": total.workers,
        "queues": [
            {
                "queue": each.queue,
                "waiting": each.waiting,
                "running": each.running,
                "mean_seconds": each.mean_seconds,
                "slots": each.slots,
                "workers": each.workers,
            }
            for each in found
        ],
    }
