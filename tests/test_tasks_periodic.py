"""Tasks of ``django.tasks`` by the clock, declared in the settings."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from awa_django import ConfigurationError, registry, schedules
from awa_django.testing import drain
from awa_django.worker.cron_scheduler import declare_schedule
from tests.tasks_support import tasks, tasks_setting

pytestmark = pytest.mark.django_db
__all__ = ["tasks_setting"]


def entry(**args: Any) -> dict[str, Any]:
    return {"PERIODIC": {"every day": {"job": tasks.mail.module_path, "cron": "@daily", "args": args}}}


def test_a_task_runs_by_the_clock(settings: Any) -> None:
    settings.AWA = entry(to="ann@example.org")
    [declared] = [job for job in registry.periodic_jobs() if job.name == "every day"]
    declare_schedule(connection, declared)  # type: ignore[arg-type]
    job_id = schedules.run_now("every day")
    [run] = drain()
    assert (run.id, run.outcome) == (job_id, "completed")
    result = tasks.mail.get_result(str(job_id))
    assert (result.status, result.return_value) == ("SUCCESSFUL", "sent to ann@example.org")
    assert result.task.queue_name == "mail"


def test_arguments_that_a_task_cannot_store_are_refused_by_name(settings: Any) -> None:
    settings.AWA = entry(to=object())
    with pytest.raises(ConfigurationError, match=r"AWA\['PERIODIC'\]\['every day'\]"):
        registry.periodic_jobs()
