"""Kind -> Handler: what ``@job`` and ``@periodic`` declare, and where it is looked up."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from awa_django.conf import PeriodicSetting, get_settings
from awa_django.errors import ConfigurationError, UnknownJobKind
from awa_django.handler import Handler, PeriodicJob

MODULES = ("tasks", "jobs")
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
