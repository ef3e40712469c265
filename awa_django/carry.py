"""What goes with a job from who enqueues it to its handler: language, time zone, trace parent.

Only what ``AWA["CARRY"]`` names is carried, in the job's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone, translation
from django.utils.decorators import sync_and_async_middleware

from awa_django.codec import JSON

LANGUAGE, TIME_ZONE = "awa:language", "awa:time_zone"
# Without a prefix of ours: the name that every tracer knows.
TRACEPARENT = "traceparent"
# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x20-\x7e]{0,200})?")

traceparent: ContextVar[str | None] = ContextVar("awa_traceparent", default=None)
"""The trace parent of the request or job that runs now, in the form of the W3C."""


def captured(names: Iterable[str]) -> dict[str, str]:
    """What there is of these now, as metadata."""
    found: dict[str, str | None] = {}
    if "language" in names:
        found[LANGUAGE] = translation.get_language()
    if "time_zone" in names:
        found[TIME_ZONE] = getattr(timezone.get_current_timezone(), "key", None)
    if "traceparent" in names:
        found[TRACEPARENT] = _well_formed(traceparent.get())
    return {key: value for key, value in found.items() if value}


@contextmanager
def restored(names: Iterable[str], metadata: Mapping[str, JSON]) -> Iterator[None]:
    """Have what the metadata carries of these hold inside; what it does not, or is unknown here, stays."""
    with ExitStack() as stack:
        language = metadata.get(LANGUAGE)
        if "language" in names and isinstance(language, str) and translation.check_for_language(language):
            stack.enter_context(translation.override(language))
        zone = _zone(metadata.get(TIME_ZONE)) if "time_zone" in names else None
        if zone is not None:
            stack.enter_context(timezone.override(zone))
        parent = _well_formed(metadata.get(TRACEPARENT)) if "traceparent" in names else None
        if parent is not None:
            stack.enter_context(_traced(parent))
        yield


@sync_and_async_middleware
def traceparent_middleware(
    get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]],
) -> Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]:
    """For Django's ``MIDDLEWARE``: the header ``traceparent`` of a request holds while it is served."""
    if iscoroutinefunction(get_response):

        async def serve_async(request: HttpRequest) -> HttpResponseBase:
            with _traced(_header(request)):
                return await cast("Awaitable[HttpResponseBase]", get_response(request))

        return serve_async

    def serve(request: HttpRequest) -> HttpResponseBase:
        with _traced(_header(request)):
            return cast("HttpResponseBase", get_response(request))

    return serve


def _header(request: HttpRequest) -> str | None:
    return _well_formed(request.headers.get("traceparent"))


def _well_formed(parent: object) -> str | None:
    """The trace parent, if it is one: what a tracer set otherwise must not stop an enqueue."""
    return parent if isinstance(parent, str) and _TRACEPARENT.fullmatch(parent) else None


@contextmanager
def _traced(parent: str | None) -> Iterator[None]:
    token = traceparent.set(parent)
    try:
        yield
    finally:
        traceparent.reset(token)


def _zone(name: JSON | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return None
