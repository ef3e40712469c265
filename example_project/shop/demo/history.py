"""The hour before ``demo --web`` began, invented: charts of a minute say little.

It has the visitors' rates and what their jobs take, with the ups and downs of an hour; only counts of ended
runs, no jobs. What the charts show from the first minute on is measured.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from django.db import connections

from awa_django.conf import get_settings
from awa_django.histogram import BOUNDS, bucket
from example_project.shop import tasks

MINUTES = 59
INSERT = """
    INSERT INTO awa.queue_stats (
        minute, queue, kind, completed_count, retried_count, failed_count,
        wait_seconds, run_seconds, wait_histogram, run_histogram
    )
    VALUES (
        date_trunc('minute', now()) - %s * interval '1 minute', %s, %s, %s, %s, %s, %s, %s, %s, %s
    )
    ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How one kind of job fares in a usual minute."""

    queue: str
    kind: str
    ended: float
    run: float
    """Seconds, of the median; as is ``wait``."""
    wait: float = 0.008
    retried: float = 0.0
    """The share of attempts that are tried again; as is ``failed``."""
    failed: float = 0.0


HABITS = (
    Habit(queue="mail", kind=tasks.send_receipt.handler.kind, ended=100, run=0.009),
    Habit(queue="default", kind=tasks.capture_payment.handler.kind, ended=200, run=0.011, retried=0.5),
    Habit(queue="default", kind=tasks.award_points.handler.kind, ended=100, run=0.012),
    Habit(queue="warehouse", kind=tasks.notify_warehouse.handler.kind, ended=100, run=0.07),
    Habit(queue="warehouse", kind=tasks.print_labels.handler.kind, ended=10, run=8.0),
    Habit(queue="mail", kind=tasks.send_reminder.handler.kind, ended=40, run=0.008, wait=0.02),
    Habit(queue="bulk", kind=tasks.send_newsletter.handler.kind, ended=260, run=0.007, wait=0.25),
    Habit(
        queue="default",
        kind=tasks.charge_expired_card.handler.kind,
        ended=8,
        run=0.009,
        retried=0.5,
        failed=0.5,
    ),
    Habit(queue="default", kind=tasks.count_orders.handler.kind, ended=1, run=0.015),
)


def invent_an_hour() -> None:
    """Write the counts of the minutes before this one, where none were counted."""
    rows = [_row(ago, habit) for ago in range(1, MINUTES + 1) for habit in HABITS]
    with connections[get_settings().database].cursor() as cursor:
        cursor.executemany(INSERT, rows)


def _row(ago: int, habit: Habit) -> tuple[Any, ...]:
    tide = 0.8 + 0.25 * math.sin(ago / 9) + 0.1 * math.sin(ago / 2.3)
    count = round(habit.ended * tide * random.uniform(0.9, 1.1)) if habit.ended > 1 else 1
    retried = round(count * habit.retried)
    failed = min(round(count * habit.failed), count - retried)
    # When more comes in, jobs wait longer.
    waits = [random.lognormvariate(math.log(habit.wait * tide**3), 0.6) for _ in range(count)]
    runs = [random.lognormvariate(math.log(habit.run), 0.4) for _ in range(count)]
    return (
        ago, habit.queue, habit.kind, count - retried - failed, retried, failed, sum(waits), sum(runs),
        _histogram(waits), _histogram(runs),
    )  # fmt: skip


def _histogram(times: list[float]) -> list[int]:
    counts = [0] * (len(BOUNDS) + 1)
    for seconds in times:
        counts[bucket(seconds)] += 1
    return counts
