"""What all scenarios share: contenders take turns for some rounds, and what they measured is kept.

Turns, because a machine is not equally fast all the time: the ratio of two contenders is taken within
each round, and the median of these ratios is what counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.database import Database, Server

if TYPE_CHECKING:  # it measures as a contender does
    from benchmarks.peer import Peer

# What one turn measured, by unit: {"jobs/s": 17_000.0}.
Measurement = Mapping[str, float]
Contender = Callable[[], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a scenario will do. The first contender is the one that the others are compared with.

    ``most_rounds`` bounds what takes long or hardly varies.
    """

    title: str
    contenders: Mapping[str, Contender]
    peers: Mapping[str, Contender] = field(default_factory=dict)
    most_rounds: int | None = None
    most_peer_rounds: int = 2


Scenario = Callable[["Bench"], Plan]


@dataclass(frozen=True, slots=True)
class Bench:
    """What a scenario works with."""

    server: Server
    rounds: int
    is_quick: bool = False
    peers: Sequence[Peer] = ()
    databases: dict[str, Database] = field(default_factory=dict)

    def size(self, full: int, *, quick: int) -> int:
        """How many, in a full run and in a quick one."""
        return quick if self.is_quick else full

    def database(self, name: str = "main", prepare: Callable[[Database], None] | None = None) -> Database:
        """A database of that name, made and prepared when it is first asked for, kept for the whole run."""
        if name not in self.databases:
            database = self.server.create(name)
            if prepare is not None:
                prepare(database)
            self.databases[name] = database
        return self.databases[name]


@dataclass(slots=True)
class Series:
    """What one contender measured, by unit, a value a round; or why it could not."""

    values: dict[str, list[float]] = field(default_factory=dict)
    failure: str = ""
    is_peer: bool = False

    def median(self, unit: str) -> float:
        return statistics.median(self.values[unit])


@dataclass(slots=True)
class Result:
    """What a scenario found."""

    name: str
    title: str
    series: dict[str, Series]

    @property
    def is_broken(self) -> bool:
        """Whether one failed that is no peer."""
        return any(series.failure for name, series in self.series.items() if not series.is_peer)

    def value(self, contender: str, unit: str) -> float | None:
        """The median, or None where it was not measured."""
        found = self.series.get(contender)
        return found.median(unit) if found and found.values.get(unit) else None

    def ratio(self, contender: str, base: str, unit: str | None = None) -> float | None:
        """The median of the rounds' ratios of one contender to another; None where one is missing."""
        one, other = self.series.get(contender), self.series.get(base)
        if not one or not other or not one.values or not other.values:
            return None
        unit = unit or next(iter(one.values))
        pairs = list(zip(one.values.get(unit, []), other.values.get(unit, []), strict=False))
        return statistics.median(mine / theirs for mine, theirs in pairs) if pairs else None


def run(name: str, plan: Plan, rounds: int, say: Callable[[str], None]) -> Result:
    """Let the contenders take turns; one that fails is out, and the others go on."""
    contenders = {**plan.contenders, **plan.peers}
    series = {contender: Series(is_peer=contender in plan.peers) for contender in contenders}
    names = list(contenders)
    rounds = min(rounds, plan.most_rounds or rounds)
    for number in range(rounds):
        start = number % len(names)  # another one first in each round
        for contender in names[start:] + names[:start]:
            mine = series[contender]
            if mine.failure or (mine.is_peer and number >= plan.most_peer_rounds):
                continue
            try:
                began = time.monotonic()
                measured = contenders[contender]()
            except Exception as exc:  # noqa: BLE001  (a broken peer must not end the others' run)
                mine.failure = f"{type(exc).__name__}: {exc}".strip()
                say(f"{name}, round {number + 1} of {rounds}: {contender} failed: {mine.failure}")
                continue
            for unit, value in measured.items():
                mine.values.setdefault(unit, []).append(value)
            told = ", ".join(f"{value:,.4g} {unit}" for unit, value in measured.items())
            took = time.monotonic() - began
            say(f"{name}, round {number + 1} of {rounds}: {contender} {told} (in {took:.0f} s)")
    return Result(name, plan.title, series)
