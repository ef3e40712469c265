"""Uniqueness: which parts of a job make its key, while it is in which states (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import Any, Literal, get_args

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
# What becomes of the job that holds the key when another one wants it.
OnConflict = Literal["skip", "raise", "replace", "reschedule", "replace_and_reschedule"]
# From the arguments as they are stored (plain JSON by name, defaults too) to the JSON that counts.
KeyFunction = Callable[[dict[str, Any]], object]
KEY_BYTES = 16
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True, init=False)
class Unique:
    """At most one job with the same key holds it at a time; the key is the kind and the parts asked for.

    ``args``: True for all arguments, the names of those that count, or a function of the stored
    arguments (a dict of plain JSON) whose answer, text or other JSON, counts. ``queue``: the queue too.
    ``period``: a new key in each period, counted from 1970 UTC, of ``run_at`` if given and of the
    database's clock otherwise. ``states``: while in which states the key is held, one of
    ``unfinished`` (the default), ``unfinished_or_completed``, ``unfinished_or_failed`` and ``kept``
    (until the row is deleted), or a set of states that contains all the unfinished ones.
    ``on_conflict``: ``skip`` leaves the holder as it is and answers with its id, ``raise`` raises
    UniqueConflict. While the holder waits to run, ``replace`` gives it the new arguments,
    ``reschedule`` the new due instant, ``replace_and_reschedule`` both; one that runs or has ended is
    left, and the answer says so.
    """

    args: bool | tuple[str, ...] | KeyFunction
    queue: bool
    period: timedelta | None
    states: str | frozenset[JobState]
    on_conflict: OnConflict

    def __init__(
        self,
        *,
        args: bool | Iterable[str] | KeyFunction = False,
        queue: bool = False,
        period: timedelta | float | None = None,
        states: str | Iterable[str] = "unfinished",
        on_conflict: OnConflict = "skip",
    ) -> None:
        settle = object.__setattr__
        settle(self, "args", _args(args))
        settle(self, "queue", queue)
        settle(self, "period", _period(period))
        settle(self, "states", _states(states))
        settle(self, "on_conflict", on_conflict)
        if queue not in (True, False):
            raise ConfigurationError(f"Unique.queue must be True or False, not {queue!r}")
        if on_conflict not in get_args(OnConflict):
            known = ", ".join(get_args(OnConflict))
            raise ConfigurationError(f"Unique.on_conflict must be one of {known}, not {on_conflict!r}")
        if self.replaces_args and args is True:
            raise ConfigurationError(
                f"Unique.on_conflict={on_conflict!r} has nothing to replace where all arguments are part "
                "of the key: name those that count in Unique(args=...)"
            )

    @property
    def replaces_args(self) -> bool:
        """Whether a waiting holder is given the new arguments."""
        return self.on_conflict in ("replace", "replace_and_reschedule")

    @property
    def reschedules(self) -> bool:
        """Whether a waiting holder is given the new due instant."""
        return self.on_conflict in ("reschedule", "replace_and_reschedule")

    @property
    def mask(self) -> str:
        """The states as the ``bit(8)`` literal that the row stores."""
        return unique_mask(STATE_GROUPS[self.states] if isinstance(self.states, str) else self.states)

    def bucket(self, at: datetime) -> int | None:
        """The number of the period that ``at`` (aware) is in; None without a period."""
        return None if self.period is None else bucket_of(at, self.period)

    def counted(self, kind: str, args: Mapping[str, object]) -> object:
        """What of the arguments is part of the key; None when nothing is.

        Raises: InvalidJob when the key function fails.
        """
        if self.args is True:
            return args
        if callable(self.args):
            return _answer(self.args, dict(args), kind)
        if self.args:
            return {name: args[name] for name in self.args if name in args}
        return None

    def key(self, kind: str, *, queue: str, args: Mapping[str, object], at: datetime | None) -> bytes:
        """The key of a job with these components; ``at`` is needed with a period only.

        Raises: InvalidJob when the key function fails, or answers what cannot be part of a key.
        """
        counted = self.counted(kind, args)
        if self.period is not None and at is None:
            raise ValueError("a key with a period needs the instant it is for")
        return unique_key(
            kind,
            queue=queue if self.queue else None,
            args=counted,
            period_bucket=None if at is None else self.bucket(at),
        )


def bucket_of(at: datetime, period: timedelta) -> int:
    """The number of the period that ``at`` (aware) is in."""
    return (at - _EPOCH) // period


def unique_key(
    kind: str,
    *,
    queue: str | None = None,
    args: object = None,
    period_bucket: int | None = None,
) -> bytes:
    """The 16 bytes that name these components; a part that is None does not count.

    ``args`` is plain JSON, an object but for a key function's answer. The same logical input gives the
    same bytes in every process and version: keys are sorted, and a float counts only as far as every
    language writes it alike.

    Raises: InvalidJob for what is no JSON, or a float that is written differently elsewhere (with an
    exponent, or -0.0).
    """
    return digest(key_material(kind, queue=queue, args=args), period_bucket)


def key_material(kind: str, *, queue: str | None, args: object) -> bytes:
    """What ``digest`` makes the key of, beside the period. Raises: InvalidJob as ``unique_key`` does."""
    material = kind.encode()
    if queue is not None:
        material += b"\x00" + queue.encode()
    if args is not None:
        try:
            canonical = json.dumps(args, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as exc:
            raise InvalidJob(f"{args!r} cannot be part of the unique key of a {kind!r} job: {exc}") from exc
        _check_floats(args, kind)
        material += b"\x00" + canonical
    return material


def digest(material: bytes, period_bucket: int | None = None) -> bytes:
    """The key of this material in this period."""
    if period_bucket is not None:
        material += b"\x00" + period_bucket.to_bytes(8, "little", signed=True)
    return blake3(material).digest(KEY_BYTES)


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


def _answer(function: KeyFunction, args: dict[str, Any], kind: str) -> object:
    try:
        counted = function(args)
    except Exception as exc:
        raise InvalidJob(f"the key function of {kind!r} failed with {exc!r}") from exc
    if counted is None:
        raise InvalidJob(f"the key function of {kind!r} answered None: answer text, or other JSON")
    return counted


def _args(args: object) -> bool | tuple[str, ...] | KeyFunction:
    if isinstance(args, bool):
        return args
    if callable(args) and not isinstance(args, type) and not iscoroutinefunction(args):
        return args
    if isinstance(args, Iterable) and not isinstance(args, str):
        names = tuple(args)
        if names and all(isinstance(name, str) for name in names):
            return names
    raise ConfigurationError(
        f"Unique.args must be True, False, names of arguments or a function of them, not {args!r}"
    )


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
