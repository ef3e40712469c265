"""``manage.py awa_status``: the state of the queue on one screen, or a probe of how long jobs wait."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from awa_django.conf import get_settings
from awa_django.management import arguments, status
from awa_django.management.base import MISUSED, NOT_AS_ASKED, OperatorCommand
from awa_django.management.output import Cell, Style, duration, instant, number, shorten
from awa_django.management.status import Status
from awa_django.storage.inspect import SCHEMA_VERSION
from awa_django.storage.status import FAILED_CAP, QueueStatus, Throughput, WorkerState, WorkerStatus

_STYLES: dict[WorkerState, Style] = {"alive": "good", "draining": "warning", "silent": "bad", "gone": "dim"}


class Command(OperatorCommand):
    help = (
        "Shows queues, workers, leader duties and throughput on one screen. "
        "Exit codes: 0 shown, 1 a job waits longer than --max-wait, 3 the database could not be asked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--watch",
            nargs="?",
            const=2,
            type=arguments.positive,
            metavar="SECONDS",
            help="show it again every 2 seconds, or as many as given, until Ctrl-C",
        )
        parser.add_argument(
            "--max-wait",
            type=arguments.duration,
            metavar="DURATION",
            help="exit with 1 if a due job waits longer (90, 15m, 2h) in a queue that is not paused",
        )
        parser.add_argument("--queue", metavar="NAME", help="what --max-wait looks at; all queues by default")

    def perform(self) -> int:
        if self.options["queue"] is not None and self.options["max_wait"] is None:
            raise CommandError("--queue is what --max-wait looks at: give both", returncode=MISUSED)
        if self.options["watch"] is None:
            found = status.ask(self.alias)
            self._show(found)
            return self._code(found)
        if self.options["json"]:
            raise CommandError(
                "--watch and --json do not go together: one document is all of stdout", returncode=MISUSED
            )
        try:
            while True:
                found = status.ask(self.alias)
                self.out.clear()
                self._show(found)
                self.stdout.flush()
                time.sleep(self.options["watch"])
        except KeyboardInterrupt:
            return 0

    def _code(self, found: Status) -> int:
        bound = self.options["max_wait"]
        if bound is None:
            return 0
        queue = self.options["queue"]
        if queue is not None and all(each.queue != queue for each in found.queues):
            self.note(f"no job, worker or schedule knows a queue {queue!r}")
        waited = found.longest_wait(queue)
        if waited <= bound.total_seconds():
            return 0
        self.note(
            f"a job has been waiting for {shorten(waited)}, longer than {shorten(bound.total_seconds())}"
        )
        return NOT_AS_ASKED

    def _show(self, found: Status) -> None:
        if self.options["json"]:
            self.out.document(_document(found))
            return
        is_right = found.schema_version == SCHEMA_VERSION
        version = str(found.schema_version) if is_right else f"{found.schema_version}, not {SCHEMA_VERSION}"
        self.out.facts(
            [
                ("database", f"{self.alias}, {instant(found.now)}"),
                ("schema version", Cell(version, "" if is_right else "bad")),
                ("promotion lag", duration(found.promotion_lag or 0, style=_slow(found.promotion_lag, 10))),
                ("longest wait", duration(found.longest_wait(), style=_slow(found.longest_wait(), 60))),
            ]
        )
        self.out.line("")
        show_queues(self, found.queues, found.cap)
        self.out.line("")
        self.out.table(
            ("WORKER", "HOST", "PID", "RUNS", "OF", "QUEUES", "UP", "SEEN", "STATE"),
            list(_worker_rows(found)),
            title="Workers",
        )
        if not any(_state(worker) in ("alive", "draining") for worker in found.workers):
            self.out.line("  no worker runs: `python manage.py awa_worker` starts one", "bad")
        self.out.line("")
        self.out.table(
            ("DUTY", "LEADER", "LEFT"),
            [
                (
                    each.duty,
                    Cell(each.holder or "nobody", "" if each.holder else "bad"),
                    duration(each.seconds_left),
                )
                for each in found.leaders
            ],
            title="Leader duties",
        )
        self.out.line("")
        self.out.table(
            ("LAST", "ENDED/MIN", "COMPLETED", "RETRIED", "FAILED", "CANCELLED", "MEAN WAIT", "MEAN RUN"),
            [_throughput_row(span) for span in found.throughput],
            title="Throughput, in whole minutes",
        )


def show_queues(command: OperatorCommand, queues: list[QueueStatus], cap: int) -> None:
    """Print the table of queues, for this command and ``awa_queues``."""
    columns = (
        "QUEUE", "STATE", "RUNNABLE", "OLDEST", "RUNNING", "DEFERRED", "DUE SOON", "OVERDUE", "FAILED"
    )  # fmt: skip
    rows = [
        (
            queue.queue,
            Cell(_paused(queue), "warning") if queue.paused else Cell("active", "good"),
            number(queue.available, cap=cap),
            duration(queue.available_seconds, style=_slow(queue.available_seconds, 60)),
            number(queue.running),
            number(queue.deferred, cap=cap),
            number(queue.due_soon, cap=cap),
            number(queue.overdue, cap=cap, style="warning"),
            number(queue.failed, cap=FAILED_CAP - 1, style="bad"),
        )
        for queue in queues
    ]
    command.out.table(columns, rows, title="Queues")


def _paused(queue: QueueStatus) -> str:
    until = f" until {instant(queue.paused_until)}" if queue.paused_until else ""
    return f"paused{until}{f' by {queue.paused_by}' if queue.paused_by else ''}"


def _slow(seconds: float | None, bound: float) -> Any:
    return "warning" if seconds is not None and seconds > bound else ""


def _state(worker: WorkerStatus) -> WorkerState:
    return worker.state(get_settings().stale_after)


def _worker_rows(found: Status) -> Iterator[tuple[Cell | str, ...]]:
    for worker in found.workers:
        state = _state(worker)
        yield (
            worker.name if worker.supervisor is None else f"  {worker.name}",
            worker.hostname,
            Cell(str(worker.pid), is_number=True),
            number(worker.running),
            Cell("-", is_number=True) if worker.supervisor is None else number(worker.concurrency),
            ", ".join(worker.queues) if worker.supervisor is None else "",
            duration(max((found.now - worker.started_at).total_seconds(), 0)),
            Cell(f"{shorten(max(worker.unseen_seconds, 0))} ago", is_number=True),
            Cell(state, _STYLES[state]),
        )


def _throughput_row(span: Throughput) -> tuple[Cell | str, ...]:
    return (
        f"{span.minutes} min",
        Cell(f"{span.ended / span.minutes:,.1f}", is_number=True),
        number(span.completed),
        number(span.retried),
        number(span.failed, style="bad"),
        number(span.cancelled),
        duration(_mean(span.wait_seconds, span)),
        duration(_mean(span.run_seconds, span)),
    )


def _mean(seconds: float, span: Throughput) -> float | None:
    return seconds / span.ended if span.ended else None


def _document(found: Status) -> dict[str, Any]:
    return {
        "now": found.now,
        "schema_version": found.schema_version,
        "expected_schema_version": SCHEMA_VERSION,
        "promotion_lag_seconds": found.promotion_lag or 0.0,
        "longest_wait_seconds": found.longest_wait(),
        "count_cap": found.cap,
        "queues": [status.queue_document(queue, cap=found.cap) for queue in found.queues],
        "workers": [{**worker._asdict(), "state": _state(worker)} for worker in found.workers],
        "leaders": [leader._asdict() for leader in found.leaders],
        "throughput": [
            {
                "minutes": span.minutes,
                "completed": span.completed,
                "retried": span.retried,
                "failed": span.failed,
                "cancelled": span.cancelled,
                "mean_wait_seconds": _mean(span.wait_seconds, span),
                "mean_run_seconds": _mean(span.run_seconds, span),
            }
            for span in found.throughput
        ],
    }
