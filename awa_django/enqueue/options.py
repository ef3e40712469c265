"""What one enqueue may ask for beyond its handler's declaration, and the row that comes of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from awa_django.carry import captured
from awa_django.codec import JSON, plain_json
from awa_django.conf import get_settings
from awa_django.durations import as_duration
from awa_django.errors import InvalidJob
from awa_django.handler import Handler
from awa_django.retry import RetryPolicy, as_policy, to_json
from awa_django.storage.insert import JobShape, NewJob
from awa_django.unique import Unique

# The bounds of the columns (jobs_timestamps_range and others): refused here by name, not there by a
# constraint that ends the caller's transaction.
EARLIEST = datetime(1, 2, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 1, tzinfo=UTC)
PRIORITIES = range(1, 5)
LONGEST_NAME = 200
MOST_TAGS = 20
MOST_ATTEMPTS = 1000
# Metadata under this prefix is the engine's own.
RESERVED = "awa:"
_SHORTEST = timedelta(milliseconds=1)


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"  # there is but one


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one enqueue; what is UNSET is as the handler declares it.

    ``run_at`` (aware) or ``delay`` from the database's now: when to run. ``unique=None`` enqueues
    without uniqueness. ``timeout``, ``max_age`` and ``retry`` hold for this job only.

    Raises: InvalidJob naming the option that is wrong.
    """

    run_at: datetime | None = None
    delay: timedelta | float | None = None
    priority: int | _Unset = UNSET
    queue: str | _Unset = UNSET
    max_attempts: int | _Unset = UNSET
    unique: Unique | _Unset | None = UNSET
    tags: Iterable[str] | _Unset = UNSET
    metadata: Mapping[str, object] = field(default_factory=dict)
    timeout: timedelta | float | None = None
    max_age: timedelta | float | None = None
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        settle = object.__setattr__
        if self.run_at is not None and self.delay is not None:
            raise InvalidJob("run_at and delay exclude each other: give one of them")
        if self.run_at is not None:
            check_run_at(self.run_at)
        if self.delay is not None:
            settle(self, "delay", _duration(self.delay, "delay", timedelta(0)))
        if not isinstance(self.priority, _Unset):
            check_whole(self.priority, "priority", PRIORITIES.start, PRIORITIES.stop - 1)
        if not isinstance(self.queue, _Unset):
            check_name(self.queue, "queue")
        if not isinstance(self.max_attempts, _Unset):
            check_whole(self.max_attempts, "max_attempts", 1, MOST_ATTEMPTS)
        if not isinstance(self.unique, (_Unset, Unique)) and self.unique is not None:
            raise InvalidJob(f"unique must be Unique(...) or None, not {self.unique!r}")
        if not isinstance(self.tags, _Unset):
            settle(self, "tags", checked_tags(self.tags))
        settle(self, "metadata", checked_metadata(self.metadata))
        if self.timeout is not None:
            settle(self, "timeout", _duration(self.timeout, "timeout", _SHORTEST))
        if self.max_age is not None:
            settle(self, "max_age", _duration(self.max_age, "max_age", _SHORTEST))
        if self.retry is not None:
            _stored_policy(self.retry)

    def updated(self, **given: Any) -> Options:
        """These options with others in their place. Raises: TypeError for an unknown one."""
        unknown = given.keys() - self.__dataclass_fields__.keys()
        if unknown:
            names = ", ".join(self.__dataclass_fields__)
            raise TypeError(f"there is no option {', '.join(sorted(unknown))}: the options are {names}")
        # Each of the pair replaces the other, as only one of them can hold.
        if "run_at" in given and "delay" not in given:
            given["delay"] = None
        elif "delay" in given and "run_at" not in given:
            given["run_at"] = None
        return replace(self, **given)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a batch, made by ``job.item(...)``: a handler, bound arguments, options."""

    handler: Handler
    arguments: Mapping[str, object]
    options: Options = msgspec.field(default_factory=Options)

    @property
    def queue(self) -> str:
        """Where the job goes."""
        return self.handler.queue if isinstance(self.options.queue, _Unset) else self.options.queue


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the jobs of a handler with the same options are made: validated once for all of them."""

    handler: Handler
    options: Options
    shape: JobShape
    unique: Unique | None

    @property
    def needs_now(self) -> bool:
        """Whether the keys are of a period that the database's clock decides."""
        return self.unique is not None and self.unique.period is not None and self.shape.run_at is None

    def make(self, arguments: Mapping[str, object]) -> NewJob:
        """The job with these bound arguments, but for its key. Raises: InvalidJob naming the argument."""
        return NewJob(self.shape, self.handler.encode(arguments))

    def keyed(self, job: NewJob, now: datetime | None) -> NewJob:
        """The job with its unique key. ``now`` is the database's, for a recipe that ``needs_now``."""
        if self.unique is None:
            return job
        at = self.shape.run_at
        if at is None and now is not None:
            at = now + (self.shape.delay or timedelta(0))
        args = self.handler.key_args(job.args) if self.unique.args else {}
        key = self.unique.key(self.shape.kind, queue=self.shape.queue, args=args, at=at)
        return NewJob(self.shape, job.args, key)


def prepare(handler: Handler, options: Options) -> Recipe:
    """Validate what jobs have in common. Raises: InvalidJob naming the option that is refused."""
    unique = handler.unique if isinstance(options.unique, _Unset) else options.unique
    if unique is not None and isinstance(unique.args, tuple):
        for name in unique.args:
            if not handler.signature.accepts(name):
                raise InvalidJob(f"Unique.args names {name!r}, which is no parameter of {handler.kind!r}")
    shape = JobShape(
        kind=handler.kind,
        queue=handler.queue if isinstance(options.queue, _Unset) else options.queue,
        priority=handler.priority if isinstance(options.priority, _Unset) else options.priority,
        max_attempts=(
            handler.max_attempts if isinstance(options.max_attempts, _Unset) else options.max_attempts
        ),
        metadata=_metadata(handler, options),
        tags=handler.tags if isinstance(options.tags, _Unset) else tuple(options.tags),
        run_at=options.run_at,
        delay=options.delay,  # type: ignore[arg-type]  # __post_init__ made it a timedelta
        unique_states=None if unique is None else unique.mask,
    )
    return Recipe(handler, options, shape, unique)


def check_run_at(run_at: object) -> None:
    """Raises: InvalidJob when it is no aware datetime that every client can represent."""
    if not isinstance(run_at, datetime):
        raise InvalidJob(f"run_at must be a datetime, not {run_at!r}")
    if run_at.utcoffset() is None:
        raise InvalidJob(
            f"run_at is naive ({run_at}): make it aware, for example with django.utils.timezone.make_aware"
        )
    if not EARLIEST <= run_at <= LATEST:
        raise InvalidJob(f"run_at must be between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}, not {run_at}")


def check_name(value: object, option: str) -> None:
    """Raises: InvalidJob unless it is 1 to 200 characters that PostgreSQL can store."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME:
        raise InvalidJob(f"{option} must be a string of 1 to {LONGEST_NAME} characters, not {value!r}")
    plain_json(value, option)


def check_whole(value: object, option: str, least: int, most: int) -> None:
    """Raises: InvalidJob unless it is an integer (no bool) in ``least..most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidJob(f"{option} must be an integer between {least} and {most}, not {value!r}")


def checked_tags(tags: object) -> tuple[str, ...]:
    """The tags as a tuple. Raises: InvalidJob for more than 20, or one that is no short string."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidJob(f"tags must be a list of strings, not {tags!r}")
    checked = tuple(tags)
    if len(checked) > MOST_TAGS:
        raise InvalidJob(f"tags are at most {MOST_TAGS}, not {len(checked)}")
    for tag in checked:
        check_name(tag, "each of tags")
    return checked


def checked_metadata(metadata: object) -> dict[str, JSON]:
    """The metadata as plain JSON. Raises: InvalidJob when it is no object, or uses a reserved key."""
    if not isinstance(metadata, Mapping):
        raise InvalidJob(f"metadata must be a dict, not {metadata!r}")
    checked: dict[str, JSON] = plain_json(dict(metadata), "metadata")  # type: ignore[assignment]
    for key in checked:
        if key.startswith(RESERVED):
            raise InvalidJob(
                f"metadata key {key!r} is reserved: keys beginning with {RESERVED!r} are the queue's own"
            )
    return checked


def _metadata(handler: Handler, options: Options) -> str:
    carry = get_settings().carry
    metadata: dict[str, object] = {**captured(carry), **options.metadata} if carry else dict(options.metadata)
    if isinstance(options.timeout, timedelta):
        metadata[f"{RESERVED}timeout"] = options.timeout.total_seconds()
    if isinstance(options.max_age, timedelta):
        metadata[f"{RESERVED}max_age"] = options.max_age.total_seconds()
    if options.retry is not None:
        metadata[f"{RESERVED}retry"] = _stored_policy(options.retry)
    metadata |= handler.marks
    if not metadata:
        return "{}"
    encoded = msgspec.json.encode(metadata)
    if len(encoded) > get_settings().max_args_bytes:
        raise InvalidJob(f"metadata takes {len(encoded)} bytes, more than AWA['MAX_ARGS_BYTES'] allows")
    return encoded.decode()


def _stored_policy(policy: RetryPolicy) -> dict[str, str | float]:
    try:
        return to_json(as_policy(policy))
    except ValueError as exc:
        raise InvalidJob(f"retry: {exc}") from exc


def _duration(value: object, option: str, least: timedelta) -> timedelta:
    try:
        return as_duration(value, option, least=least)
    except ValueError as exc:
        raise InvalidJob(str(exc)) from exc
