"""What docs/periodic.md shows is run here, so that it stays true."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from awa_django import UniqueConflict, registry, schedules
from awa_django.cron import Due, due_fires, next_fires
from awa_django.models import HotJob
from awa_django.storage import cron_jobs as storage
from awa_django.testing import drain
from awa_django.worker import cron_scheduler
from tests.conftest import PROJECT_DIR
from tests.test_docs import blocks

PAGE = "docs/periodic.md"
ROW = re.compile(r"^\| `([^`]+)` \| (\w+/\w+) \| (\d{4}-\d\d-\d\d)[^|]* \|([^|]*)\|$", re.MULTILINE)


@pytest.fixture
def page(empty_registry: None) -> dict[str, Any]:
    """The names of the page, as a module of a project that has no other job."""
    names: dict[str, Any] = {"__name__": "shop.tasks"}
    exec(blocks(PAGE, "python")[0], names)
    return names


@pytest.mark.django_db
def test_the_page_runs(page: dict[str, Any], settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, setting, overlap, listing = blocks(PAGE, "python")
    exec(setting, page)
    settings.AWA = page["AWA"]
    declared = registry.periodic_jobs()
    assert [job.name for job in declared] == [
        "close month",
        "nightly sync",
        "shop.morning_report",
        "sync stock",
    ]
    for job in declared:
        cron_scheduler.declare_schedule(connection, job)  # type: ignore[arg-type]
    exec(listing, page)
    assert [schedule.name for schedule in schedules.list_schedules()] == [job.name for job in declared]

    fire_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    storage.fire_cron_job(
        connection,
        "nightly sync",
        [fire_at],
        until=fire_at,
        since=fire_at - timedelta(days=2),
        skipped_count=0,
    )
    [run] = drain()
    assert run.outcome == "completed"
    shop, at = capsys.readouterr().out.split(maxsplit=1)
    assert (shop, datetime.fromisoformat(at.strip())) == ("south", fire_at)

    exec(overlap, page)
    rebuild_index = page["rebuild_index"]
    [added] = [job for job in registry.periodic_jobs() if job.handler is rebuild_index.handler]
    cron_scheduler.declare_schedule(connection, added)  # type: ignore[arg-type]
    holder_id = schedules.run_now(added.name)
    assert rebuild_index.enqueue().holder_id == holder_id
    with pytest.raises(UniqueConflict):
        schedules.run_now(added.name)
    assert [run.kind for run in drain()] == ["shop.rebuild_index"]


@pytest.mark.django_db
def test_the_verbs_of_the_page_do_what_it_says(page: dict[str, Any]) -> None:
    for job in registry.periodic_jobs():
        cron_scheduler.declare_schedule(connection, job)  # type: ignore[arg-type]
    text = (PROJECT_DIR / PAGE).read_text(encoding="utf-8")
    [verbs] = re.findall(r"```python norun\n(.*?)```", text, re.DOTALL)
    exec(verbs, {"schedules": schedules})
    assert schedules.find("close month").state == "active"
    assert HotJob.objects.get().metadata["awa:cron"]["asked_by"] == "ann"


def test_the_table_of_changed_clocks_is_true() -> None:
    rows = ROW.findall((PROJECT_DIR / PAGE).read_text(encoding="utf-8"))
    assert len(rows) == 8
    for expr, name, day, shown in rows:
        zone = ZoneInfo(name)
        start = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC) - timedelta(seconds=1)
        expected = [fire.strip() for fire in shown.split(",") if fire.strip()]
        fires = [fire.astimezone(zone) for fire in next_fires(expr, name, start, 30)]
        today = [f"{fire:%H:%M} {fire.tzname()}" for fire in fires if f"{fire:%Y-%m-%d}" == day]
        if expected:
            first = today.index(expected[0])  # of a schedule that fires all day, those that matter
            today = today[first : first + len(expected)] if "*" in expr.split()[:2] else today
        assert today == expected, (expr, name)


def test_a_schedule_of_utc_knows_no_changes() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    year = due_fires("30 2 * * *", "UTC", start, start + timedelta(days=365), 1)
    assert year == Due([datetime(2026, 12, 31, 2, 30, tzinfo=UTC)], 365)
