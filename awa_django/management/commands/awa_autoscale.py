"""``manage.py awa_autoscale``: how many workers the queues want."""

from __future__ import annotations

import math
from argparse import ArgumentParser

from awa_django import scaling
from awa_django.conf import get_settings
from awa_django.management import arguments
from awa_django.management.base import OperatorCommand
from awa_django.management.output import duration, number


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
        found = scaling.ask(self.alias, queues=names, target=target, slots_per_worker=self.options["slots"])
        slots = scaling.rounded(sum(each.load for each in found))
        per_worker = min((each.slots_per_worker for each in found), default=scaling.DEFAULT_SLOTS)
        workers = math.ceil(slots / per_worker)
        if self.options["json"]:
            self.out.document(
                {
                    "target_seconds": target.total_seconds(),
                    "slots": slots,
                    "slots_per_worker": per_worker,
                    "workers": workers,
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
            )
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
        self.out.line(f"together {workers} {'worker' if workers == 1 else 'workers'} of {per_worker} slots")
        return 0
