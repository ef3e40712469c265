"""Kind -> Handler: what ``@job`` and ``@periodic`` declare, and where it is looked up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import ClassVar

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from awa_django.binding import Signature
from awa_django.codec import JSON
from awa_django.conf import PeriodicSetting, get_settings
from awa_django.cron import DEFAULT_CATCH_UP, Missed
from awa_django.errors import ConfigurationError, UnknownJobKind
from awa_django.redaction import Secrets, find_secrets
from awa_django.retry import RetryPolicy
from awa_django.unique import Unique

MODULES = ("tasks", "jobs")
# Where the metadata of a job name its secret arguments; and, as ``{"former": [...]}`` among the names, the
# values that they had before somebody changed them: the errors of old attempts may tell those.
MASKED_KEY = "awa:secret"


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


_handlers: dict[str, Handler] = {}
_by_alias: dict[str, Handler] = {}
_periodic: dict[str, PeriodicJob] = {}
_queues: set[str] = set()


def register(handler: Handler) -> Handler:
    """Make the handler known under its kind and aliases.

    The same function again under one of these names (its module was loaded anew) takes the place of
    its older self. Under other names it is a handler of its own: a function may serve several kinds.

    Raises: ConfigurationError naming both functions when another one has the kind or an alias.
    """
    older = {name: find(name) for name in (handler.kind, *handler.aliases)}
    for name, known in older.items():
        if known is not None and known.where != handler.where:
            raise ConfigurationError(
                f"kind {name!r} is declared twice, by {known.where} and {handler.where}: "
                "give one of them a kind of its own, @job(kind=...)"
            )
    for known in older.values():
        if known is not None:
            unregister(known)
    _handlers[handler.kind] = handler
    for alias in handler.aliases:
        _by_alias[alias] = handler
    return handler


def unregister(handler: Handler) -> None:
    """Forget the handler and its schedules (for tests and reloading)."""
    for name in [name for name, job in _periodic.items() if job.handler is handler]:
        del _periodic[name]
    for names in (_handlers, _by_alias):
        for name in [name for name, known in names.items() if known is handler]:
            del names[name]


def find(kind: str) -> Handler | None:
    """The handler of the kind or alias, if there is one."""
    return _handlers.get(kind) or _by_alias.get(kind)


def get(kind: str) -> Handler:
    """The handler of the kind or alias. Raises: UnknownJobKind."""
    handler = find(kind)
    if handler is None:
        raise UnknownJobKind(kind)
    return handler


def secret_names(kind: str, stored: str | None = None) -> frozenset[str]:
    """The arguments of a job that are masked where it is shown.

    Those that its kind declares here, and those with which it was enqueued: ``stored`` is the JSON text
    of ``MASKED_KEY`` in its metadata, where anybody may have written anything.
    """
    handler = find(kind)
    declared = frozenset() if handler is None else frozenset(handler.secret)
    return declared.union(name for name in _listed(stored) if isinstance(name, str))


def former_secrets(stored: str | None) -> set[str]:
    """The values that secret arguments of a job had before they were changed; ``stored`` as above."""
    found: set[str] = set()
    for entry in _listed(stored):
        values = entry.get("former") if isinstance(entry, dict) else None
        if isinstance(values, list):
            found.update(value for value in values if isinstance(value, str))
    return found


def find_job_secrets(kind: str, args: str, stored: str | None = None) -> Secrets:
    """All that is masked of a job with these arguments (JSON text); ``stored`` as above."""
    return find_secrets(args, secret_names(kind, stored), former_secrets(stored))


def _listed(stored: str | None) -> list[JSON]:
    with contextlib.suppress(ValueError, RecursionError):
        listed: JSON = json.loads(stored or "[]")
        if isinstance(listed, list):
            return listed
    return []


def handlers() -> list[Handler]:
    """All handlers, by kind."""
    return [_handlers[kind] for kind in sorted(_handlers)]


def kinds() -> list[str]:
    """Every name a stored job may have: kinds and aliases, sorted."""
    return sorted({*_handlers, *_by_alias})


def queues() -> list[str]:
    """The queues that the handlers declare, and those added, sorted."""
    return sorted({handler.queue for handler in _handlers.values()} | _queues)


def add_queues(names: Iterable[str]) -> None:
    """Have workers serve these queues too, which no handler declares as its own."""
    _queues.update(names)


def register_periodic(job: PeriodicJob) -> PeriodicJob:
    """Make the schedule known. Raises: ConfigurationError when another one has its name.

    A function loaded anew brings a new handler, whose schedules take the places of the older ones.
    """
    known = _periodic.get(job.name)
    if known is not None and (known.handler is job.handler or known.handler.where != job.handler.where):
        raise ConfigurationError(
            f"periodic job {job.name!r} is declared twice, for {known.handler.where} "
            f"and {job.handler.where}: give one of them a name of its own, @periodic(..., name=...)"
        )
    _periodic[job.name] = job
    return job


def periodic_jobs() -> list[PeriodicJob]:
    """All declared schedules, those of ``AWA["PERIODIC"]`` too, by name.

    Raises: ConfigurationError naming the entry of the setting that fits no handler.
    """
    jobs = [*_periodic.values(), *map(_from_settings, get_settings().periodic.values())]
    return sorted(jobs, key=lambda job: job.name)


def _from_settings(entry: PeriodicSetting) -> PeriodicJob:
    where = f"AWA['PERIODIC'][{entry.name!r}]"
    handler = find(entry.job)
    if handler is None:
        raise ConfigurationError(f"{where} names the job {entry.job!r}, which no handler has as its kind")
    if entry.name in _periodic:
        raise ConfigurationError(
            f"{where} has the name of a schedule that {_periodic[entry.name].handler.where} declares"
        )
    try:
        arguments = handler.bind((), entry.args)
    except (TypeError, ValueError) as exc:  # InvalidJob is one; a task refuses in its own way
        raise ConfigurationError(f"{where}: {exc}") from exc
    return PeriodicJob(
        name=entry.name,
        cron_expr=entry.cron,
        timezone=entry.timezone,
        handler=handler,
        arguments=arguments,
        missed=entry.missed,
        catch_up_limit=entry.catch_up_limit,
    )


def discover() -> list[ModuleType]:
    """Import the ``tasks`` and ``jobs`` modules of the installed apps, and ``AWA["IMPORTS"]``; all of them,
    but for ``AWA["SKIP_IMPORTS"]``.

    Raises: ConfigurationError naming the module that cannot be imported, and why.
    """
    settings = get_settings()
    paths = [
        path
        for config in apps.get_app_configs()
        for name in MODULES
        if (path := f"{config.name}.{name}") not in settings.skip_imports
        and module_has_submodule(config.module, name)
    ]
    modules = []
    for path in (*paths, *settings.imports):
        try:
            modules.append(import_module(path))
        except ConfigurationError:
            raise
        except Exception as exc:
            hint = "; AWA['SKIP_IMPORTS'] leaves out one of another queue" if path in paths else ""
            raise ConfigurationError(f"cannot import {path}, which may declare jobs: {exc!r}{hint}") from exc
    return modules
