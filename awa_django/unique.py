"""Uniqueness: which parts of a job make its key, while it is in which states (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from blake3 import blake3

from awa_django.durations import as_duration
from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.states import UNFINISHED_STATES, JobState, unique_mask

# The engine moves a job between all unfinished states (a failed attempt goes from running through
# retryable back to available), so a mask holds all of them: with fewer, a job would give up its key
# and collide with the next holder when the engine brings it back. Nothing but an operator brings
# back a job that has ended, so any final state may be added.
STATE_GROUPS: Mapping[str, frozenset[JobState]] = {
    "unfinished": UNFINISHED_STATES,
    "unfinished_or_completed": UNFINISHED_STATES | {JobState.COMPLETED},
    "unfinished_or_failed": UNFINISHED_STATES | {JobState.FAILED},
    "kept": frozenset(JobState),
}
KEY_BYTES = 16
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True, init=False)
class Unique:
    """At most one job with the same key holds it at a time; the key is the kind and the parts asked for.

    ``args``: True for all arguments, or the names of those that count. ``queue``: the queue too.
    ``period``: a new key in each period, counted from 1970 UTC, of ``run_at`` if given and of the
    database's clock otherwise. ``states``: while in which states the key is held, one of
    ``unfinished`` (the default), ``unfinished_or_completed``, ``unfinished_or_failed`` and ``kept``
    (until the row is deleted), or a set of states that contains all the unfinished ones.
    ``on_conflict``: ``skip`` answers with the holder's id, ``raise`` raises UniqueConflict.
    """

    args: bool | tuple[str, ...]
    queue: bool
    period: timedelta | None
    states: str | frozenset[JobState]
    on_conflict: Literal["skip", "raise"]

    def __init__(
        self,
        *,
        args: bool | Iterable[str] = False,
        queue: bool = False,
        period: timedelta | float | None = None,
        states: str | Iterable[str] = "unfinished",
        on_conflict: Literal["skip", "raise"] = "skip",
    ) -> None:
        settle = object.__setattr__
        settle(self, "args", _names(args))
        settle(self, "queue", queue)
        settle(self, "period", _period(period))
        settle(self, "states", _states(states))
        settle(self, "on_conflict", on_conflict)
        if queue not in (True, False):
            raise ConfigurationError(f"Unique.queue must be True or False, not {queue!r}")
        if on_conflict not in ("skip", "raise"):
            raise ConfigurationError(f"Unique.on_conflict must be 'skip' or 'raise', not {on_conflict!r}")

    @property
    def mask(self) -> str:
        """The states as the ``bit(8)`` literal that the row stores."""
        return unique_mask(STATE_GROUPS[self.states] if isinstance(self.states, str) else self.states)

    def bucket(self, at: datetime) -> int | None:
        """The number of the period that ``at`` (aware) is in; None without a period."""
        return None if self.period is None else (at - _EPOCH) // self.period

    def key(self, kind: str, *, queue: str, args: Mapping[str, object], at: datetime | None) -> bytes:
        """The key of a job with these components; ``at`` is needed with a period only."""
        if self.args is True:
            counted: Mapping[str, object] | None = args
        else:
            counted = {name: args[name] for name in self.args if name in args} if self.args else None
        if self.period is not None and at is None:
            raise ValueError("a key with a period needs the instant it is for")
        return unique_key(
            kind,
            queue=queue if self.queue else None,
            args=counted,
            period_bucket=None if at is None else self.bucket(at),
        )


def unique_key(
    kind: str,
    *,
    queue: str | None = None,
    args: Mapping[str, object] | None = None,
    period_bucket: int | None = None,
) -> bytes:
    """The 16 bytes that name these components; a part that is None does not count.

    ``args`` is plain JSON. The same logical input gives the same bytes in every process and version:
    keys are sorted, and a float counts only as far as every language writes it alike.

    Raises: InvalidJob for a float that is written differently elsewhere (with an exponent, or -0.0).
    """
    hasher = blake3(kind.encode())
    if queue is not None:
        hasher.update(b"\x00" + queue.encode())
    if args is not None:
        _check_floats(args, kind)
        canonical = json.dumps(args, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        hasher.update(b"\x00" + canonical.encode())
    if period_bucket is not None:
        hasher.update(b"\x00" + period_bucket.to_bytes(8, "little", signed=True))
    return hasher.digest(KEY_BYTES)


def _check_floats(value: object, kind: str) -> None:
    if isinstance(value, float):
        if "e" in repr(value) or not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
            raise InvalidJob(
                f"the arguments of {kind!r} hold {value!r}, which cannot be part of a unique key: "
                "pass it as text or Decimal, or name the arguments that count in Unique(args=...)"
            )
    elif isinstance(value, Mapping):
        for item in value.values():
            _check_floats(item, kind)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_floats(item, kind)


def _period(period: object) -> timedelta | None:
    try:
        return None if period is None else as_duration(period, "Unique.period", least=timedelta(seconds=1))
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from exc


def _names(args: object) -> bool | tuple[str, ...]:
    if isinstance(args, bool):
        return args
    if isinstance(args, Iterable) and not isinstance(args, str):
        names = tuple(args)
        if names and all(isinstance(name, str) for name in names):
            return names
    raise ConfigurationError(f"Unique.args must be True, False or names of arguments, not {args!r}")


def _states(states: object) -> str | frozenset[JobState]:
    safe = ", ".join(STATE_GROUPS)
    if isinstance(states, str):
        if states in STATE_GROUPS:
            return states
        raise ConfigurationError(f"Unique.states has no group {states!r}: use one of {safe}")
    try:
        chosen = frozenset(JobState(state) for state in states)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"Unique.states must be one of {safe}, or a set of states: {exc}") from exc
    missing = UNFINISHED_STATES - chosen
    if missing:
        raise ConfigurationError(
            f"Unique.states lacks {', '.join(sorted(missing))}: a job that leaves its key in one unfinished "
            f"state and comes back in another would collide with the next holder; use one of {safe}"
        )
    return chosen
