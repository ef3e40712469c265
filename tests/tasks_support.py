"""The setting ``TASKS`` of the tests of its backend. Importing it skips them where there is no framework."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import django
import pytest
from django.test import override_settings

BACKEND = "awa_django.tasks_backend.AwaBackend"
TASKS: dict[str, Any] = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail", "no-task"]},
    "other": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"max_attempts": 2, "timeout": 30}},
}

# Not by an ImportError: one of ours would then skip every test of the backend.
if django.VERSION < (6, 0) and find_spec("django_tasks") is None:
    pytest.skip("Django 5.2 has no tasks without the django-tasks package", allow_module_level=True)

from awa_django.tasks_backend import AwaBackend, AwaTask, framework, load  # noqa: E402

IMMEDIATE = framework.BaseTaskBackend.__module__.replace(".base", ".immediate") + ".ImmediateBackend"
TASKS["immediate"] = {"BACKEND": IMMEDIATE}

with override_settings(TASKS=TASKS):  # as a project's settings would say when its tasks are imported
    from tests import declared_tasks

tasks: Any = declared_tasks  # wrong calls are refused at run time too

needs_options = pytest.mark.skipif(
    not tasks.PASSES_OPTIONS, reason="the @task of Django 6.0 passes no options on"
)


@pytest.fixture(autouse=True)
def tasks_setting(settings: Any) -> None:
    settings.TASKS = TASKS


__all__ = [
    "BACKEND",
    "TASKS",
    "AwaBackend",
    "AwaTask",
    "framework",
    "load",
    "needs_options",
    "tasks",
    "tasks_setting",
]
