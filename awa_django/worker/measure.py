"""Measure: what one worker counts in its own memory, as metrics; nothing is asked of the database."""

from __future__ import annotations

from collections.abc import Callable

from awa_django.exposition import Family, as_text, gauge
from awa_django.worker.health import Health
from awa_django.worker.slots import Counter

# What a claimed job ended as, by the name of its label.
ENDS = (
    Counter.COMPLETED,
    Counter.RETRIED,
    Counter.FAILED,
    Counter.CANCELLED,
    Counter.SNOOZED,
    Counter.RELEASED,
    Counter.UNKNOWN_KIND,
    Counter.STALE,
    Counter.SUPERSEDED,
)


def measure(health: Health, count: Callable[[Counter], int], held: int) -> str:
    """The metrics of one worker, its children taken together; ``count`` is over all it ever had."""
    return as_text(families(health, count, held))


def families(health: Health, count: Callable[[Counter], int], held: int) -> list[Family]:
    """The same before they are text."""
    return [
        gauge("awa_worker_uptime_seconds", "How long the worker has been up.", round(health.uptime, 3)),
        gauge("awa_worker_ready", "Whether it claims and writes now.", int(health.is_ready)),
        gauge("awa_worker_draining", "Whether it is stopping.", int(health.draining)),
        gauge("awa_worker_children_ready", "Its child processes that are ready.", health.children_ready),
        gauge("awa_worker_held", "Jobs in its hands, running ones included.", held),
        Family(
            "awa_worker_claimed_total",
            "counter",
            "Jobs that it has claimed.",
            [("", {}, count(Counter.CLAIMED))],
        ),
        Family(
            "awa_worker_ended_total",
            "counter",
            "Jobs that left its hands, by how.",
            [("", {"outcome": end.name.lower()}, count(end)) for end in ENDS],
        ),
        Family(
            "awa_worker_loop_age_seconds",
            "gauge",
            "Since each of its loops last did its work; of the children, the slowest.",
            [("", {"loop": name}, round(age, 3)) for name, age in _ages(health).items()],
        ),
    ]


def _ages(health: Health) -> dict[str, float]:
    """By loop; a loop that has not begun is as old as the worker. Children come and go: theirs are one."""
    ages: dict[str, float] = {}
    for loop in health.loops:
        name = loop.name.partition(" of ")[0]
        ages[name] = max(ages.get(name, 0.0), health.uptime if loop.age is None else loop.age)
    return ages
