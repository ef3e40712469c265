"""What the product must reach, and whether a run has shown it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import Result


@dataclass(frozen=True, slots=True)
class Goal:
    """``measure`` finds the number in the results, None where it was not taken."""

    what: str
    sign: str  # ">=" or "<="
    limit: float
    measure: Callable[[Mapping[str, Result]], float | None]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, and what was measured."""

    what: str
    goal: str
    measured: float | None

    is_met: bool | None


def ratio(
    scenario: str, contender: str, base: str, unit: str | None = None
) -> Callable[[Mapping[str, Result]], float | None]:
    def measure(results: Mapping[str, Result]) -> float | None:
        result = results.get(scenario)
        return result.ratio(contender, base, unit) if result else None

    return measure


def value(scenario: str, contender: str, unit: str) -> Callable[[Mapping[str, Result]], float | None]:
    def measure(results: Mapping[str, Result]) -> float | None:
        result = results.get(scenario)
        return result.value(contender, unit) if result else None

    return measure


GOALS: Sequence[Goal] = (
    Goal("drain, one child, to the floor", ">=", 0.6, ratio("drain", "awa", "floor")),
    Goal(
        "drain, two children, to two floors",
        ">=",
        0.6,
        ratio("drain", "awa, 2 children", "floor, 2 processes"),
    ),
    Goal("drain to pgqueuer", ">=", 1.7, ratio("drain", "awa", "pgqueuer")),
    Goal("drain to awa-pg 0.5.7", ">=", 3, ratio("drain", "awa", "awa-pg")),
    Goal("drain to Celery with Redis", ">=", 15, ratio("drain", "awa", "celery")),
    Goal("drain to procrastinate", ">=", 35, ratio("drain", "awa", "procrastinate")),
    Goal("drain, async handlers, to sync", ">=", 0.8, ratio("drain", "awa, async", "awa")),
    Goal(
        "drain beside 5 million deferred rows, to without",
        ">=",
        0.95,
        ratio("deferred", "5,000,000 deferred", "without"),
    ),
    Goal("drain beside 2 million kept rows, to without", ">=", 0.9, ratio("history", "kept", "without")),
    Goal("drain of 64 queues, to one", ">=", 0.8, ratio("queues", "64 queues", "1 queue")),
    Goal(
        "last 10 s of a pinned snapshot, to the first 10 s",
        ">=",
        0.9,
        value("pinned", "awa", "last to first"),
    ),
    Goal("single enqueue, to a bare INSERT", ">=", 0.85, ratio("enqueue", "awa", "bare INSERT")),
    Goal(
        "8 producers beside a busy worker, to never telling it",
        ">=",
        0.9,
        ratio("producers", "worker busy", "worker busy, never told"),
    ),
    Goal("bulk enqueue, to a bare COPY", ">=", 0.5, ratio("enqueue-many", "awa", "bare COPY")),
    Goal(
        "50,000 due at one instant, to a floor's drain",
        ">=",
        0.5,
        ratio("due-burst", "awa", "floor, already due"),
    ),
    Goal("promotion, to the bare statement", ">=", 0.5, ratio("promotion", "awa", "bare statement")),
    Goal("pick-up after the enqueue's commit, p50", "<=", 3, value("pickup", "awa", "p50 ms"), "ms"),
    Goal("pick-up after the enqueue's commit, p99", "<=", 15, value("pickup", "awa", "p99 ms"), "ms"),
    Goal("lateness at 1,000 due a second, p50", "<=", 50, value("due-rate", "awa", "p50 ms"), "ms"),
    Goal("lateness at 1,000 due a second, p99", "<=", 250, value("due-rate", "awa", "p99 ms"), "ms"),
    Goal("WAL in a job's whole life", "<=", 1_200, value("cost", "awa", "WAL bytes/job"), "bytes"),
    Goal("statements for a job in a drain", "<=", 0.02, value("cost", "awa", "statements/job")),
    Goal("queries of an idle worker", "<=", 6, value("cost", "awa, idle", "statements/s"), "/s"),
    Goal("memory growth from 50,000 to 500,000 jobs", "<=", 0.1, value("memory", "awa", "growth")),
)


def judge(results: Sequence[Result]) -> list[Verdict]:
    """Each goal with what this run says of it."""
    by_name = {result.name: result for result in results}
    verdicts = []
    for goal in GOALS:
        measured = goal.measure(by_name)
        is_met = (
            None
            if measured is None
            else (measured >= goal.limit if goal.sign == ">=" else measured <= goal.limit)
        )
        words = "at least" if goal.sign == ">=" else "at most"
        verdicts.append(Verdict(goal.what, f"{words} {goal.limit:g} {goal.unit}".strip(), measured, is_met))
    return verdicts
