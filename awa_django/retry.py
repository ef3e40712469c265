"""Retry policies: from the attempt that failed to the wait before the next one.

A policy is a plain object, made with timedeltas or seconds. ``delay`` answers for every integer,
with never more than the cap. A function of the attempt will do too, where nothing has to be stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Protocol, TypeAlias, runtime_checkable

from awa_django.durations import as_duration

DAY = timedelta(hours=24)


@runtime_checkable
class RetryPolicy(Protocol):
    """How long to wait after an attempt has failed."""

    def delay(self, attempt: int) -> timedelta:
        """The wait after ``attempt`` (the one that just failed, from 1) before the next."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """``base`` after the first attempt, ``factor`` times more after each, at most ``cap``.

    ``jitter`` is the share of the wait that is random: 0.5 waits between half of it and all of it,
    so that jobs which failed together do not come back together. The result is never above the cap.
    """

    base: timedelta
    factor: float
    cap: timedelta
    jitter: float

    def __init__(
        self,
        *,
        base: timedelta | float = timedelta(seconds=5),
        factor: float = 2.0,
        cap: timedelta | float = DAY,
        jitter: float = 0.5,
    ) -> None:
        object.__setattr__(self, "base", as_duration(base, "Exponential.base"))
        object.__setattr__(self, "factor", _number(factor, "Exponential.factor", 1.0, 100.0))
        object.__setattr__(self, "cap", as_duration(cap, "Exponential.cap"))
        object.__setattr__(self, "jitter", _number(jitter, "Exponential.jitter", 0.0, 1.0))

    def delay(self, attempt: int) -> timedelta:
        base, cap = self.base.total_seconds(), self.cap.total_seconds()
        try:
            wait = min(base * self.factor ** (max(attempt, 1) - 1), cap)
        except OverflowError:
            wait = cap if base else 0.0
        return _jittered(wait, self.jitter)


@dataclass(frozen=True, slots=True, init=False)
class Linear:
    """``base`` after the first attempt and ``step`` more after each, at most ``cap``."""

    base: timedelta
    step: timedelta
    cap: timedelta
    jitter: float

    def __init__(
        self,
        *,
        base: timedelta | float = timedelta(seconds=30),
        step: timedelta | float = timedelta(seconds=30),
        cap: timedelta | float = DAY,
        jitter: float = 0.0,
    ) -> None:
        object.__setattr__(self, "base", as_duration(base, "Linear.base"))
        object.__setattr__(self, "step", as_duration(step, "Linear.step"))
        object.__setattr__(self, "cap", as_duration(cap, "Linear.cap"))
        object.__setattr__(self, "jitter", _number(jitter, "Linear.jitter", 0.0, 1.0))

    def delay(self, attempt: int) -> timedelta:
        cap = self.cap.total_seconds()
        try:
            wait = min(self.base.total_seconds() + self.step.total_seconds() * (max(attempt, 1) - 1), cap)
        except OverflowError:  # an attempt number beyond any float
            wait = cap if self.step else min(self.base.total_seconds(), cap)
        return _jittered(wait, self.jitter)


@dataclass(frozen=True, slots=True, init=False)
class Fixed:
    """The same ``wait`` after each attempt."""

    wait: timedelta
    jitter: float

    def __init__(self, *, wait: timedelta | float = timedelta(minutes=1), jitter: float = 0.0) -> None:
        object.__setattr__(self, "wait", as_duration(wait, "Fixed.wait"))
        object.__setattr__(self, "jitter", _number(jitter, "Fixed.jitter", 0.0, 1.0))

    def delay(self, attempt: int) -> timedelta:
        return _jittered(self.wait.total_seconds(), self.jitter)


@dataclass(frozen=True, slots=True)
class Computed:
    """What ``function`` answers to the number of the attempt that failed: a timedelta, or seconds."""

    function: Callable[[int], timedelta | float]

    def delay(self, attempt: int) -> timedelta:
        return as_duration(self.function(attempt), "what the retry function returned")


Retry: TypeAlias = RetryPolicy | Callable[[int], timedelta | float]


def as_policy(value: object, name: str = "retry") -> RetryPolicy:
    """The policy that ``value`` (a policy, or a function of the attempt) stands for.

    Raises: ValueError naming ``name`` for anything else.
    """
    if not isinstance(value, type):
        if isinstance(value, RetryPolicy):
            return value
        if callable(value) and not iscoroutinefunction(value):
            return Computed(value)
    raise ValueError(
        f"{name} must be a policy such as Exponential(), or a function from the attempt to the wait, "
        f"not {value!r}"
    )


def to_json(policy: RetryPolicy) -> dict[str, str | float]:
    """The policy as a JSON object (durations in seconds), to travel with one job.

    Raises: ValueError for a policy of a class of one's own: only its name could travel, and
    nothing from the database is ever used as an import path.
    """
    match policy:
        case Exponential(base=base, factor=factor, cap=cap, jitter=jitter):
            return {
                "policy": "exponential",
                "base": base.total_seconds(),
                "factor": factor,
                "cap": cap.total_seconds(),
                "jitter": jitter,
            }
        case Linear(base=base, step=step, cap=cap, jitter=jitter):
            return {
                "policy": "linear",
                "base": base.total_seconds(),
                "step": step.total_seconds(),
                "cap": cap.total_seconds(),
                "jitter": jitter,
            }
        case Fixed(wait=wait, jitter=jitter):
            return {"policy": "fixed", "wait": wait.total_seconds(), "jitter": jitter}
    raise ValueError(
        f"{policy!r} cannot be stored with a job: use Exponential, Linear or Fixed here, "
        "or declare it with @job(retry=...)"
    )


def from_json(data: object) -> RetryPolicy:
    """The policy that ``to_json`` wrote. Raises: ValueError for anything else."""
    if not isinstance(data, Mapping):
        raise ValueError(f"a stored retry policy must be an object, not {data!r}")
    values = dict(data)
    make = _POLICY_NAMES.get(str(values.pop("policy", None)))
    if make is None:
        raise ValueError(f"unknown retry policy in {dict(data)!r}")
    try:
        return make(**values)
    except TypeError as exc:
        raise ValueError(f"bad retry policy {dict(data)!r}: {exc}") from exc


_POLICY_NAMES: dict[str, type[Exponential | Linear | Fixed]] = {
    "exponential": Exponential,
    "linear": Linear,
    "fixed": Fixed,
}
POLICIES = frozenset(_POLICY_NAMES.values())
"""The classes of this module: no code of anybody else's."""


def _jittered(wait: float, jitter: float) -> timedelta:
    return timedelta(seconds=wait * (1.0 - jitter * random.random()))


def _number(value: object, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ValueError(f"{name} must be a number between {least:g} and {most:g}, not {value!r}")
    return float(value)
