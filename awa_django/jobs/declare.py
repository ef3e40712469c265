"""``@job`` and ``@periodic``: declare a function as a handler, and when it runs by itself.

They touch no setting, model or connection, and refuse a wrong declaration at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Concatenate, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from asgiref.sync import iscoroutinefunction

from awa_django import cron, registry
from awa_django.binding import Signature
from awa_django.context import JobContext
from awa_django.durations import as_duration
from awa_django.enqueue.options import (
    MOST_ATTEMPTS,
    PRIORITIES,
    Options,
    check_name,
    check_whole,
    checked_metadata,
    checked_tags,
)
from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.handler import Handler, PeriodicJob
from awa_django.jobs.job import AnyJob, ContextJob, Job, P, R
from awa_django.registry import MODULES
from awa_django.retry import Retry, as_policy
from awa_django.unique import Unique

J = TypeVar("J", bound=AnyJob)
Exceptions: TypeAlias = type[Exception] | Iterable[type[Exception]]


class JobOptions(TypedDict, total=False):
    """What ``@job`` takes beside ``takes_context``."""

    kind: str
    queue: str
    priority: int
    max_attempts: int
    retry: Retry
    retry_on: Exceptions
    discard_on: Exceptions
    timeout: timedelta | float
    max_age: timedelta | float
    unique: Unique
    tags: Iterable[str]
    atomic: bool
    keep_result: bool
    secret: Iterable[str]
    aliases: Iterable[str]


class _Decorator(Protocol):
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


class _ContextDecorator(Protocol):
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextJob[P, R]: ...


class _PeriodicDecorator(Protocol):
    @overload
    def __call__(self, function: J, /) -> J: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(*, takes_context: Literal[True], **options: Unpack[JobOptions]) -> _ContextDecorator: ...
@overload
def job(*, takes_context: Literal[False] = False, **options: Unpack[JobOptions]) -> _Decorator: ...
def job(
    function: Callable[..., object] | None = None,
    /,
    *,
    takes_context: bool = False,
    **options: Unpack[JobOptions],
) -> object:
    """Declare a function as the handler of a kind of jobs.

    ``kind`` is the name that its rows bear: by default the package and the function, without
    ``tasks`` or ``jobs`` (``shop.send_receipt``). ``aliases`` are older kinds that it still runs.
    ``queue``, ``priority`` (1 is first, 4 last), ``max_attempts``, ``retry``, ``tags`` and
    ``unique`` hold unless one enqueue says otherwise. ``timeout`` counts from the start of a run.
    ``retry_on`` are the exceptions after which it is tried again: another one fails the job at once.
    ``discard_on`` are those that end the job as cancelled. What was due more than ``max_age`` ago is
    not begun any more, but fails.
    ``takes_context`` passes a JobContext first. ``atomic`` (sync handlers) runs it in a transaction
    together with its completion. ``keep_result`` stores what it returns. ``secret`` names the arguments
    whose values are masked wherever its jobs are shown.

    Raises: ConfigurationError naming what is wrong, or the other function that has the kind.
    """

    def declare(function: Callable[..., object]) -> AnyJob:
        unknown = options.keys() - JobOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"@job has no option {', '.join(sorted(unknown))}")
        handler = registry.register(_handler(function, takes_context, options))
        made: AnyJob = ContextJob(handler) if takes_context else Job(handler)
        object.__setattr__(handler, "declared_as", made)  # each knows the other, so one comes first
        return made

    return declare if function is None else declare(function)


def periodic(
    cron_expr: str,
    *,
    timezone: str = "UTC",
    args: Mapping[str, object] | None = None,
    name: str | None = None,
    metadata: Mapping[str, object] | None = None,
    missed: cron.Missed = "coalesce",
    catch_up_limit: int = cron.DEFAULT_CATCH_UP,
) -> _PeriodicDecorator:
    """Run a job by the clock: once per fire time of the cron expression, read in the time zone.

    Decorates a Job (put it above ``@job``) or a plain function. ``args`` are the job's arguments.
    ``name`` is the schedule's own, by default the kind; a second schedule of a job needs one.
    ``missed`` says what happens to fires while no worker ran: ``coalesce`` makes one job for all of them,
    ``skip`` none, ``catch_up`` one for each of the newest ``catch_up_limit``.

    Raises: ConfigurationError for an expression, zone, argument or name that cannot be used.
    """
    cron.validate(cron_expr, timezone)
    try:
        cron.check_missed(missed, catch_up_limit)
    except ValueError as exc:
        raise ConfigurationError(f"@periodic: {exc}") from exc

    def declare(function: AnyJob | Callable[..., object]) -> AnyJob:
        target = function if isinstance(function, Job) else cast("AnyJob", job(function))
        handler = target.handler
        if target.options != Options():
            raise ConfigurationError(
                f"@periodic on {handler.where}: its jobs are as @job declares them, "
                "so give it the job itself, without using(...)"
            )
        try:
            check_name(name or handler.kind, "name")
            arguments = handler.bind((), args or {})
            checked = checked_metadata(metadata or {})
        except InvalidJob as exc:
            raise ConfigurationError(f"@periodic on {handler.where}: {exc}") from exc
        registry.register_periodic(
            PeriodicJob(
                name=name or handler.kind,
                cron_expr=cron_expr,
                timezone=timezone,
                handler=handler,
                arguments=arguments,
                metadata=checked,
                missed=missed,
                catch_up_limit=catch_up_limit,
            )
        )
        return target

    return cast("_PeriodicDecorator", declare)


def default_kind(function: Callable[..., object]) -> str:
    """Package and function: ``shop.send_receipt`` for ``project.shop.tasks.send_receipt``.

    Modules below ``tasks`` or ``jobs`` stay (``shop.mail.send`` for ``shop.tasks.mail.send``);
    outside of such a module the kind has the last two parts of the path.
    """
    parts = function.__module__.split(".")
    places = [place for place, part in enumerate(parts) if part in MODULES and place > 0]
    parts = [parts[places[-1] - 1], *parts[places[-1] + 1 :]] if places else parts[-2:]
    return ".".join((*parts, function.__name__))


def _handler(function: Callable[..., object], takes_context: bool, options: JobOptions) -> Handler:
    where = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
    if not inspect.isfunction(function):
        raise ConfigurationError(f"@job goes on a function, not on {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@job on {where}: a generator does nothing when called, so it is no handler"
        )
    is_async = iscoroutinefunction(function)
    if options.get("atomic") and is_async:
        raise ConfigurationError(f"@job on {where}: atomic=True needs a sync handler, as transactions do")
    kind = options.get("kind", default_kind(function))
    try:
        handler = Handler(
            kind=kind,
            function=function,
            signature=Signature(function, kind=kind, takes_context=takes_context),
            is_async=is_async,
            queue=options.get("queue", "default"),
            priority=options.get("priority", 2),
            declared_max_attempts=options.get("max_attempts"),
            declared_retry=as_policy(options["retry"]) if options.get("retry") is not None else None,
            retry_on=exception_classes(options["retry_on"], "retry_on") if "retry_on" in options else None,
            discard_on=exception_classes(options.get("discard_on", ()), "discard_on"),
            declared_timeout=_duration(options.get("timeout"), "timeout"),
            max_age=_duration(options.get("max_age"), "max_age"),
            unique=options.get("unique"),
            tags=checked_tags(options.get("tags", ())),
            takes_context=takes_context,
            atomic=options.get("atomic", False),
            keep_result=options.get("keep_result", False),
            secret=_names(options.get("secret", ()), "secret", "arguments"),
            aliases=_names(options.get("aliases", ()), "aliases", "kinds"),
        )
        _check(handler)
    except ConfigurationError:
        raise
    except ValueError as exc:  # InvalidJob is one
        raise ConfigurationError(f"@job on {where}: {exc}") from exc
    return handler


def _check(handler: Handler) -> None:
    for name in (handler.kind, *handler.aliases):
        check_name(name, "kind")
    for name in handler.secret:
        check_name(name, "each of secret")
        if not handler.signature.accepts(name):
            raise ValueError(f"secret names {name!r}, which is no parameter")
    check_name(handler.queue, "queue")
    check_whole(handler.priority, "priority", PRIORITIES.start, PRIORITIES.stop - 1)
    if handler.declared_max_attempts is not None:
        check_whole(handler.declared_max_attempts, "max_attempts", 1, MOST_ATTEMPTS)
    if handler.unique is None:
        return
    if not isinstance(handler.unique, Unique):
        raise ValueError(f"unique must be Unique(...), not {handler.unique!r}")
    for name in handler.unique.args if isinstance(handler.unique.args, tuple) else ():
        if not handler.signature.accepts(name):
            raise ValueError(f"Unique.args names {name!r}, which is no parameter")


def _duration(value: object, option: str) -> timedelta | None:
    return None if value is None else as_duration(value, option, least=timedelta(milliseconds=1))


def exception_classes(classes: object, option: str) -> tuple[type[Exception], ...]:
    """The classes as a tuple. Raises: ValueError naming the option when one is none of an Exception."""
    listed = tuple(classes) if isinstance(classes, Iterable) else (classes,)
    for each in listed:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise ValueError(f"{option} must be exception classes, not {each!r}")
    return listed


def _names(names: object, option: str, what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{option} must be a list of {what}, not {names!r}")
    return tuple(names)
