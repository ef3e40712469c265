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
    Goal("drain, async handlers, to sync", ">=", 0.8, ratio("drain", "awa, async", "awa")),
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
