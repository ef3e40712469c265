"""docs/enqueue.md and docs/queues.md say what the code does."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest

from awa_django.jobs.job import UsingOptions
from awa_django.models import Job
from awa_django.operations import HIGHEST_PRIORITY, LOWEST_PRIORITY
from tests.conftest import PROJECT_DIR
from tests.test_docs_pages import module, run

__all__ = ["module"]  # a fixture
pytestmark = pytest.mark.django_db


def test_the_page_on_enqueuing_does_what_it_says(module: ModuleType, settings: Any) -> None:
    run("docs/enqueue.md", module, settings)
    assert Job.objects.filter(state="scheduled").count() == 3
    assert Job.objects.filter(state="available").count() == 1_000 + 5
    assert Job.objects.filter(queue="express", priority=1, tags=["vip"]).count() == 3
    assert Job.objects.order_by("pk")[0].args == {"order_id": 17, "copy": True}


def test_each_option_is_in_the_table() -> None:
    page = (PROJECT_DIR / "docs/enqueue.md").read_text(encoding="utf-8")
    table = page[page.index("| option |") : page.index("## Many")]
    cells = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert documented == set(UsingOptions.__annotations__)


def test_the_page_on_queues_does_what_it_says(module: ModuleType, settings: Any) -> None:
    run("docs/queues.md", module, settings)
    assert Job.objects.get().queue == "mail"
    page = (PROJECT_DIR / "docs/queues.md").read_text(encoding="utf-8")
    assert sorted([HIGHEST_PRIORITY, LOWEST_PRIORITY]) == [-98, 102]
    assert "-98 to 102" in page
