"""What docs/django-tasks.md shows is run here, so that it stays true."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from django.db import connection

from awa_django.testing import drain
from tests.tasks_support import framework, needs_options
from tests.test_docs import blocks

pytestmark = pytest.mark.django_db
PAGE = "docs/django-tasks.md"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, registered: None) -> ModuleType:
    """The module of the page."""
    module = ModuleType("shop.tasks")
    monkeypatch.setitem(sys.modules, "shop.tasks", module)
    return module


@needs_options
def test_the_page_runs(module: ModuleType, settings: Any) -> None:
    names: dict[str, Any] = module.__dict__
    installed, declared, called, options = blocks(PAGE, "python")
    told: dict[str, Any] = {}
    exec(installed, told)  # the settings that it shows
    assert told["INSTALLED_APPS"] == ["awa_django"]
    settings.TASKS = told["TASKS"]
    path = framework.BaseTaskBackend.__module__.partition(".backends")[0]
    exec(declared.replace("from django.tasks import", f"from {path} import"), names)
    exec(called, names)
    result = names["result"]
    assert result.status == "READY"
    drain()
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", "sent 3")

    exec(options, names)
    charge = names["charge"]
    assert charge.enqueue(1).id == charge.using(max_attempts=1).enqueue(order_id=1).id

    [insert] = blocks(PAGE, "sql")
    with connection.cursor() as cursor:
        cursor.execute(insert)
        [(job_id,)] = cursor.fetchall()
    drain()
    assert names["send_receipt"].get_result(str(job_id)).return_value == "sent 3"
