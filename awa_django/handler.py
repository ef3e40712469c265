"""Handler and PeriodicJob: what is known of a kind of jobs, and of a schedule, by their declarations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from awa_django.binding import Signature
from awa_django.codec import JSON
from awa_django.conf import get_settings
from awa_django.cron import DEFAULT_CATCH_UP, Missed
from awa_django.fire_key import FIRE_KEY, FireKey
from awa_django.redaction import MASKED_KEY
from awa_django.retry import RetryPolicy
from awa_django.unique import Unique


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handler:
    """What is known of a kind: its function and how its jobs are made and run.

    What is declared as None is the setting's value, read when it is asked for.
    """

    hears_of_end: ClassVar[bool] = False
    """Whether ``ended`` wants to be called."""

    kind: str
    function: Callable[..., object]
    signature: Signature = field(repr=False)
    is_async: bool = False
    queue: str = "default"
    priority: int = 2
    declared_max_attempts: int | None = None
    declared_retry: RetryPolicy | None = None
    declared_timeout: timedelta | None = None
    retry_on: tuple[type[Exception], ...] | None = None
    """An Exception of another class fails the job at once; None: each is tried again."""
    max_age: timedelta | None = None
    """How long after it was due a job may still begin; None for ever."""
    discard_on: tuple[type[Exception], ...] = ()
    """An exception of these classes ends the job as cancelled."""
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    takes_context: bool = False
    atomic: bool = False
    keep_result: bool = False
    aliases: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    """Arguments whose values are masked wherever a job is shown."""
    declared_as: object = field(default=None, repr=False)
    """What the decorator made of the function."""

    @property
    def marks(self) -> dict[str, JSON]:
        """What the metadata of its jobs say to those who do not know the kind."""
        return {MASKED_KEY: list(self.secret)} if self.secret else {}

    @property
    def sender(self) -> object:
        """Who sends the signals about its jobs: what people have in hand, not this record."""
        return self.declared_as

    @property
    def max_attempts(self) -> int:
        declared = self.declared_max_attempts
        return get_settings().max_attempts if declared is None else declared

    @property
    def retry(self) -> RetryPolicy:
        return get_settings().retry if self.declared_retry is None else self.declared_retry

    @property
    def timeout(self) -> timedelta | None:
        """How long a run may take from its start; None for ever."""
        return get_settings().timeout if self.declared_timeout is None else self.declared_timeout

    @property
    def where(self) -> str:
        """Module and name of the function, for messages."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by name. Raises: InvalidJob when they do not fit the signature."""
        return self.signature.bind(args, kwargs)

    def encode(self, arguments: Mapping[str, object]) -> str:
        """Bound arguments as the JSON text to store. Raises: InvalidJob naming the argument."""
        return self.signature.encode(arguments, max_bytes=get_settings().max_args_bytes)

    def decode(self, args_json: str | bytes) -> dict[str, object]:
        """Stored arguments as the function takes them. Raises: InvalidJob naming the argument."""
        return self.signature.decode(args_json)

    def call(self, context: object | None, arguments: Mapping[str, object]) -> object:
        """Call the function with decoded arguments; of an ``async def`` one, what to await."""
        return self.function(**arguments) if context is None else self.function(context, **arguments)

    def ended(self, context: object | None, arguments: Mapping[str, object] | None, outcome: object) -> None:
        """A run ended with this outcome, which is about to be stored (of an ``atomic`` one: is stored).

        Called on a thread of the database's, inside of the ``except`` where an exception ended it.
        ``arguments`` are None when they could not be decoded.
        """

    def key_args(self, args_json: str) -> dict[str, JSON]:
        """The arguments that a unique key is made of: the stored ones, and the defaults of the others.

        So a call that leaves out a default has the key of one that spells it out. A default that
        JSON cannot hold does not count.
        """
        return {**self.signature.encoded_defaults, **json.loads(args_json)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """A declared schedule: at each fire time of the expression one job of the handler.

    ``missed`` is what happens to fires while no worker led; ``catch_up_limit`` bounds ``catch_up``.
    """

    name: str
    cron_expr: str
    timezone: str
    handler: Handler
    arguments: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    missed: Missed = "coalesce"
    catch_up_limit: int = DEFAULT_CATCH_UP

    @property
    def kind(self) -> str:
        return self.handler.kind

    @property
    def queue(self) -> str:
        return self.handler.queue

    @property
    def priority(self) -> int:
        return self.handler.priority

    @property
    def max_attempts(self) -> int:
        return self.handler.max_attempts

    @property
    def tags(self) -> tuple[str, ...]:
        return self.handler.tags

    def encode(self) -> str:
        """The arguments as JSON text. Raises: InvalidJob naming the argument that cannot be stored."""
        return self.handler.encode(self.arguments)

    def stored_metadata(self) -> dict[str, JSON]:
        """What the schedule's row says to those who do not know the kind: of its jobs, and of their key.

        Raises: InvalidJob when the arguments cannot be part of the key that the handler declares.
        """
        metadata = {**self.metadata, **self.handler.marks}
        unique = self.handler.unique
        if unique is not None:
            args = self.handler.key_args(self.encode()) if unique.args else {}
            metadata[FIRE_KEY] = FireKey.of(unique, self.kind, queue=self.queue, args=args).to_json()
        return metadata
