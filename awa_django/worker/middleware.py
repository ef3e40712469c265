"""Middleware: what ``AWA["MIDDLEWARE"]`` puts round each handler, in Django's manner.

A factory gets what to call next and returns what to call instead, once per process: one chain for
``def`` handlers, one for ``async def`` handlers. Each link takes the JobContext and returns what the
handler returned. Round them all is what was carried from the enqueue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import MiddlewareNotUsed
from django.utils.module_loading import import_string

from awa_django import registry
from awa_django.carry import restored
from awa_django.conf import get_settings
from awa_django.context import JobContext
from awa_django.errors import ConfigurationError
from awa_django.handler import Handler
from awa_django.logs import get_logger

logger = get_logger(__name__)

Link: TypeAlias = Callable[[JobContext], object]


def load() -> None:
    """Make the chains that the handlers need. Raises: ConfigurationError naming a path that is wrong."""
    for is_async in sorted({handler.is_async for handler in registry.handlers()}):
        _chain(get_settings().middleware, is_async)


def supervise(is_leading: Callable[[], bool]) -> None:
    """Tell the middleware that this process leads its children, as its factory's ``supervising`` asks.

    ``is_leading``: whether this worker is now the one of the installation that tells what is told once.
    An error is logged.
    """
    for path in get_settings().middleware:
        try:
            supervising = getattr(import_string(path), "supervising", None)
            if supervising is not None:
                supervising(is_leading)
        except ImportError:
            pass  # the children say so, and do not start
        except Exception:
            logger.exception("what the middleware %s does in a worker's own process failed", path)


def stop() -> None:
    """Tell the middleware that this process ends, as its factory's ``stopping`` asks; an error is logged."""
    for path in get_settings().middleware:
        try:
            stopping = getattr(import_string(path), "stopping", None)
            if stopping is not None:
                stopping()
        except Exception:
            logger.exception("what the middleware %s does at the end of a worker process failed", path)


class Surrounded:
    """A handler inside of what stands round it: to be called as the handler itself."""

    __slots__ = ("_handler", "keep_result")

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.keep_result = handler.keep_result

    def call(self, context: JobContext | None, arguments: Mapping[str, object]) -> object:
        """Call it; of an ``async def`` one, what to await."""
        assert context is not None
        handler = self._handler

        def innermost(passed: JobContext) -> object:
            return handler.call(passed if handler.takes_context else None, arguments)

        context = replace(context, _call=innermost)
        return _call_async(context) if handler.is_async else _call(context)


def _call(context: JobContext) -> object:
    settings = get_settings()
    with restored(settings.carry, context.metadata):
        return _chain(settings.middleware, is_async=False)(context)


async def _call_async(context: JobContext) -> object:
    settings = get_settings()
    with restored(settings.carry, context.metadata):
        return await cast("Awaitable[object]", _chain(settings.middleware, is_async=True)(context))


@cache
def _chain(paths: tuple[str, ...], is_async: bool) -> Link:
    """The handler's call with the middleware round it, the first of the paths outermost."""
    link: Link = _innermost_async if is_async else _innermost
    for path in reversed(paths):
        link = _wrapped(path, link, is_async=is_async)
    return link


def _wrapped(path: str, link: Link, *, is_async: bool) -> Link:
    try:
        factory: Any = import_string(path)
    except ImportError as exc:
        raise ConfigurationError(f"AWA['MIDDLEWARE']: cannot import {path!r}: {exc}") from exc
    # The attributes of Django's own middleware, with Django's defaults. But nothing is adapted: a sync
    # link in an async chain would hold up every job of the event loop.
    if not getattr(factory, "async_capable" if is_async else "sync_capable", not is_async):
        kind = "async def" if is_async else "def"
        raise ConfigurationError(
            f"AWA['MIDDLEWARE']: {path!r} cannot stand round {kind} handlers, of which there are some: "
            "make it a @sync_and_async_middleware (django.utils.decorators)"
        )
    try:
        made: Link | None = factory(link)
    except MiddlewareNotUsed:
        return link
    if made is None or iscoroutinefunction(made) != is_async:
        wanted = "a coroutine function (or mark it as one)" if is_async else "a sync function"
        raise ConfigurationError(f"AWA['MIDDLEWARE']: {path!r} must return {wanted} here, not {made!r}")
    return made


def _innermost(context: JobContext) -> object:
    return context._call(context)


async def _innermost_async(context: JobContext) -> object:
    return await cast("Awaitable[object]", context._call(context))
