"""The ``AWA`` setting as one frozen dataclass: read at first use, read again after setting_changed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import Any, Literal

from django.conf import settings
from django.core.signals import setting_changed

from awa_django.cron import DEFAULT_CATCH_UP, Missed, check_missed, validate
from awa_django.durations import as_duration
from awa_django.errors import ConfigurationError
from awa_django.retry import Exponential, RetryPolicy, as_policy, from_json
from awa_django.states import TERMINAL_STATES

INSTANT = timedelta(milliseconds=1)
MEBIBYTE = 1024 * 1024
# jsonb itself ends at 256 MiB; a payload of that size belongs into storage of its own.
LARGEST_ARGS = 64 * MEBIBYTE
CARRIED = ("language", "time_zone", "traceparent")
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a job is kept after its end, by final state, and by queue where one says otherwise."""

    by_state: Mapping[str, timedelta] = field(
        default_factory=lambda: {
            "completed": timedelta(hours=24),
            "failed": timedelta(days=7),
            "cancelled": timedelta(days=7),
        }
    )
    by_queue: Mapping[str, Mapping[str, timedelta]] = field(default_factory=dict)

    def of(self, queue: str, state: str) -> timedelta:
        """How long a job of ``queue`` that ended in ``state`` is kept; zero deletes it at its end."""
        of_queue = self.by_queue.get(queue)
        return self.by_state[state] if of_queue is None else of_queue.get(state, self.by_state[state])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicSetting:
    """A schedule that the settings declare: at each fire time of ``cron`` one job of the kind ``job``."""

    name: str
    job: str
    cron: str
    timezone: str = "UTC"
    args: Mapping[str, object] = field(default_factory=dict)
    missed: Missed = "coalesce"
    catch_up_limit: int = DEFAULT_CATCH_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaSettings:
    """The settings with their defaults; each attribute is the key of ``AWA`` in lower case."""

    database: str = "default"
    queues: tuple[str, ...] = ()
    retention: Retention = field(default_factory=Retention)
    max_attempts: int = 25
    retry: RetryPolicy = field(default_factory=Exponential)
    timeout: timedelta | None = None
    heartbeat_interval: timedelta = timedelta(seconds=30)
    stale_after: timedelta = timedelta(seconds=90)
    sweep_interval: timedelta = timedelta(seconds=15)
    poll_interval: timedelta = timedelta(seconds=1)
    promote_interval: timedelta = timedelta(milliseconds=250)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    # A direct URL for LISTEN alone, where the database alias goes through a transaction pooler.
    listen_url: str | None = None
    max_args_bytes: int = MEBIBYTE
    imports: tuple[str, ...] = ()
    # Modules of installed apps that are not imported for their name: another queue's tasks.
    skip_imports: tuple[str, ...] = ()
    periodic: Mapping[str, PeriodicSetting] = field(default_factory=dict)
    # Parts of key names, in lower case, whose values the admin and the commands mask.
    redact: tuple[str, ...] = ("password", "passwd", "secret", "token", "api_key", "authorization")
    # The longest statement of a page of the admin; None leaves it to the server.
    admin_statement_timeout: timedelta | None = timedelta(seconds=5)
    # Where the job goes that does an action of the admin on all that match.
    bulk_queue: str = "default"
    # "host:port" of the worker's health page; None serves none.
    health: str | None = None
    # Within which what waits should end: what the wanted workers are computed from.
    drain_target: timedelta = timedelta(seconds=60)
    # What a scraper brings as bearer token to awa_django.views.metrics; None lets in staff only.
    metrics_token: str | None = field(default=None, repr=False)
    # Dotted paths of what stands round each handler, the first outermost.
    middleware: tuple[str, ...] = ()
    # Which of CARRIED go from who enqueues to the handler, in the job's metadata.
    carry: tuple[str, ...] = ()
    # Run jobs in the process that enqueues them: at once, or when its transaction commits.
    inline: Literal["enqueue", "commit"] | None = None


def get_settings() -> AwaSettings:
    """The settings as they are now. Raises: ConfigurationError naming the key that is wrong."""
    return _read()


@cache
def _read() -> AwaSettings:
    given = getattr(settings, "AWA", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"AWA must be a dict, not {type(given).__name__}")
    values: dict[str, Any] = {}
    for key, value in given.items():
        read = _READERS.get(key)
        if read is None:
            near = difflib.get_close_matches(str(key).upper(), _READERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_READERS))}"
            raise ConfigurationError(f"AWA has no key {key!r}: {hint}")
        try:
            values[key.lower()] = read(value, f"AWA[{key!r}]")
        except ConfigurationError:
            raise
        except ValueError as exc:
            raise ConfigurationError(str(exc)) from exc
    made = AwaSettings(**values)
    if made.stale_after < 2 * made.heartbeat_interval:
        raise ConfigurationError(
            f"AWA['STALE_AFTER'] ({made.stale_after}) must be at least twice "
            f"AWA['HEARTBEAT_INTERVAL'] ({made.heartbeat_interval}): one late beat must not end a job"
        )
    return made


def _reset(*, setting: str, **_: object) -> None:
    if setting == "AWA":
        _read.cache_clear()


setting_changed.connect(_reset, dispatch_uid="awa_django.conf")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a non-empty string, not {value!r}")
    return value


def _optional_text(value: object, name: str) -> str | None:
    return None if value is None or value == "" else _text(value, name)


def _names(value: object, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of strings, not {value!r}")
    return tuple(_text(item, name) for item in value)


def _carried(value: object, name: str) -> tuple[str, ...]:
    names = _names(value, name)
    for each in names:
        if each not in CARRIED:
            raise ValueError(f"{name} must be some of {', '.join(CARRIED)}, not {each!r}")
    return names


def _whole(value: object, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be an integer between {least} and {most}, not {value!r}")
    return value


def _duration(value: object, name: str) -> timedelta:
    return as_duration(value, name, least=INSTANT)


def _optional_duration(value: object, name: str) -> timedelta | None:
    return None if value is None else _duration(value, name)


def _policy(value: object, name: str) -> RetryPolicy:
    if isinstance(value, Mapping):
        return from_json(value)
    return as_policy(value, name)


def _inline(value: object, name: str) -> object:
    if value not in (None, "enqueue", "commit"):
        raise ValueError(f"{name} must be None, 'enqueue' or 'commit', not {value!r}")
    return value


def _retention(value: object, name: str) -> Retention:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, not {value!r}")
    by_queue = value.get("queues", {})
    if not isinstance(by_queue, Mapping):
        raise ValueError(f"{name}['queues'] must be a dict of queue names, not {by_queue!r}")
    return Retention(
        by_state={
            **Retention().by_state,
            **_by_state({state: kept for state, kept in value.items() if state != "queues"}, name),
        },
        by_queue={
            _text(queue, f"{name}['queues']"): _by_state(kept, f"{name}['queues'][{queue!r}]")
            for queue, kept in by_queue.items()
        },
    )


def _periodic(value: object, name: str) -> dict[str, PeriodicSetting]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict of schedules by their names, not {value!r}")
    return {key: _periodic_entry(entry, key, f"{name}[{key!r}]") for key, entry in value.items()}


def _periodic_entry(value: object, key: object, name: str) -> PeriodicSetting:
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_NAME or "\0" in key:
        raise ValueError(f"{name}: the name of a schedule must be a string of 1 to {LONGEST_NAME} characters")
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict such as {{'job': ..., 'cron': ...}}, not {value!r}")
    known = PeriodicSetting.__dataclass_fields__.keys() - {"name"}
    for option in value.keys() - known:
        raise ValueError(f"{name} has no key {option!r}: it takes {', '.join(sorted(known))}")
    for option in ("job", "cron"):
        _text(value.get(option), f"{name}[{option!r}]")
    if not isinstance(value.get("args", {}), Mapping):
        raise ValueError(f"{name}['args'] must be a dict of the job's arguments, not {value['args']!r}")
    made = PeriodicSetting(name=key, **value)
    _text(made.timezone, f"{name}['timezone']")
    try:
        check_missed(made.missed, made.catch_up_limit)
        validate(made.cron, made.timezone)
    except (ValueError, ConfigurationError) as exc:
        raise ValueError(f"{name}: {exc}") from exc
    return made


def _by_state(value: object, name: str) -> dict[str, timedelta]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, not {value!r}")
    for state in value:
        if state not in TERMINAL_STATES:
            raise ValueError(f"{name} has no key {state!r}: it takes {', '.join(sorted(TERMINAL_STATES))}")
    return {state: as_duration(kept, f"{name}[{state!r}]") for state, kept in value.items()}


_READERS: dict[str, Callable[[object, str], object]] = {
    "DATABASE": _text,
    "QUEUES": _names,
    "RETENTION": _retention,
    "MAX_ATTEMPTS": partial(_whole, least=1, most=1000),
    "RETRY": _policy,
    "TIMEOUT": _optional_duration,
    "HEARTBEAT_INTERVAL": _duration,
    "STALE_AFTER": _duration,
    "SWEEP_INTERVAL": _duration,
    "POLL_INTERVAL": _duration,
    "PROMOTE_INTERVAL": _duration,
    "SHUTDOWN_TIMEOUT": _duration,
    "LISTEN_URL": _optional_text,
    "MAX_ARGS_BYTES": partial(_whole, least=2, most=LARGEST_ARGS),
    "IMPORTS": _names,
    "SKIP_IMPORTS": _names,
    "PERIODIC": _periodic,
    "REDACT": _names,
    "ADMIN_STATEMENT_TIMEOUT": _optional_duration,
    "BULK_QUEUE": _text,
    "HEALTH": _optional_text,
    "DRAIN_TARGET": partial(as_duration, least=timedelta(seconds=1)),
    "METRICS_TOKEN": _optional_text,
    "MIDDLEWARE": _names,
    "CARRY": _carried,
    "INLINE": _inline,
}
