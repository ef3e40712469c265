"""What goes with a job from who enqueues it, and what becomes of it at the other end."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils import timezone, translation

from awa_django import registry
from awa_django.carry import captured, restored, traceparent, traceparent_middleware
from awa_django.conf import CARRIED, get_settings
from awa_django.enqueue.options import Options, prepare
from awa_django.errors import ConfigurationError
from awa_django.jobs import job

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def now() -> tuple[object, ...]:
    return translation.get_language(), timezone.get_current_timezone_name(), traceparent.get()


def shape(**options: Any) -> Any:
    def nothing() -> None: ...

    declared = job(kind="tests.carry")(nothing)
    registry.unregister(declared.handler)
    return prepare(declared.handler, Options(**options)).shape


def test_what_is_captured_is_restored() -> None:
    with translation.override("es"), timezone.override(ZoneInfo("Asia/Tokyo")):
        carried = captured(CARRIED)
        there = now()
    assert carried == {"awa:language": "es", "awa:time_zone": "Asia/Tokyo"}
    here = now()
    with restored(CARRIED, carried):
        assert now() == there
    assert now() == here


@pytest.mark.parametrize(
    "parent", ["", "bad\0", PARENT + "\n", "x" * 10_000, 5, b"x"], ids=lambda each: repr(each)[:9]
)
def test_trace_parent_that_is_none_is_not_carried(parent: Any) -> None:
    """A tracer's bad value was refused by the database, which ended the transaction of who enqueued."""
    token = traceparent.set(parent)
    try:
        assert captured(["traceparent"]) == {}
    finally:
        traceparent.reset(token)


def test_plain_job_stays_plain_unless_something_is_carried(settings: Any) -> None:
    assert shape().is_plain
    settings.AWA = {"CARRY": ["traceparent"]}
    assert shape().is_plain  # there is none
    settings.AWA = {"CARRY": ["language"]}
    with translation.override("es"):
        assert json.loads(shape(metadata={"by": "ann"}).metadata) == {"awa:language": "es", "by": "ann"}


def test_metadata_of_ones_own_comes_before_what_is_captured(settings: Any) -> None:
    settings.AWA = {"CARRY": ["traceparent"]}
    token = traceparent.set(PARENT)
    try:
        assert json.loads(shape().metadata) == {"traceparent": PARENT}
        assert json.loads(shape(metadata={"traceparent": "mine"}).metadata) == {"traceparent": "mine"}
    finally:
        traceparent.reset(token)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"awa:language": 5, "awa:time_zone": [], "traceparent": {}},
        {"awa:language": "../../etc", "awa:time_zone": "../../etc/passwd", "traceparent": "no"},
        {"awa:language": "xx", "awa:time_zone": "Europe", "traceparent": PARENT + "\n"},
        {"awa:language": "", "awa:time_zone": "", "traceparent": ""},
        {"awa:time_zone": "a\x00", "awa:language": "\x00"},
        {"awa:time_zone": "Europe/Atlantis"},
    ],
    ids=repr,
)
def test_what_cannot_be_restored_stays_as_it_is(metadata: Any) -> None:
    here = now()
    with restored(CARRIED, metadata):
        assert now() == here


def test_unknown_thing_to_carry_is_refused(settings: Any) -> None:
    settings.AWA = {"CARRY": ["user"]}
    with pytest.raises(ConfigurationError, match=r"AWA\['CARRY'\].*language.*'user'"):
        get_settings()


@pytest.mark.parametrize(("header", "expected"), [(PARENT, PARENT), ("<script>", None), (None, None)])
@pytest.mark.parametrize("is_async", [False, True])
def test_header_of_a_request_is_the_trace_parent_while_it_is_served(
    header: str | None, expected: str | None, is_async: bool
) -> None:
    seen: list[str | None] = []
    request = RequestFactory().get("/", headers={} if header is None else {"traceparent": header})

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(traceparent.get())
        return HttpResponse()

    async def view_async(request: HttpRequest) -> HttpResponse:
        return view(request)

    if is_async:
        asyncio.run(traceparent_middleware(view_async)(request))  # type: ignore[arg-type]
    else:
        traceparent_middleware(view)(request)
    assert seen == [expected]
    assert traceparent.get() is None
