"""What docs/middleware.md shows is run here, so that it stays true."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.utils import translation

from awa_django import registry
from awa_django.conf import CARRIED
from awa_django.jobs import Job, job
from awa_django.testing import drain
from awa_django.worker import middleware
from tests.test_docs import blocks

pytestmark = pytest.mark.django_db
PAGE = "docs/middleware.md"


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """The module of the page."""
    module = ModuleType("shop.middleware")
    sys.modules["shop.middleware"] = module
    middleware._chain.cache_clear()
    yield module
    middleware._chain.cache_clear()
    del sys.modules["shop.middleware"]


def test_the_page_runs(module: ModuleType, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    source, setting, carry, web = blocks(PAGE, "python")
    exec(source, module.__dict__)
    told: dict[str, Any] = {}
    exec(setting, told)
    used = told["AWA"]
    exec(carry, told)
    assert set(told["AWA"]["CARRY"]) == set(CARRIED)
    settings.AWA = {**used, **told["AWA"]}
    exec(web, told)
    settings.MIDDLEWARE = told["MIDDLEWARE"]

    spoken: list[str | None] = []

    def speak() -> None:
        spoken.append(translation.get_language())

    async def speak_async() -> None:
        speak()

    declared: list[Job[[], Any]] = [job(kind="docs.speak")(speak), job(kind="docs.speak_async")(speak_async)]
    try:
        with translation.override("es"):
            for each in declared:
                each.enqueue()
        with caplog.at_level(logging.INFO):
            drain()
    finally:
        for each in declared:
            registry.unregister(each.handler)
    assert spoken == ["es", "es"]
    assert sum("docs.speak" in record.getMessage() for record in caplog.records) == 2


@pytest.mark.urls("example_project.urls")
def test_the_middleware_of_requests_can_be_installed(settings: Any, client: Any) -> None:
    told: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[-1], told)
    settings.MIDDLEWARE = [*told["MIDDLEWARE"], *settings.MIDDLEWARE]
    assert client.get("/", headers={"traceparent": "no"}).status_code == 200
