"""An operator's verbs on schedules, by code and by ``awa_cron``."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from awa_django import ScheduleNotFound, Unique, UniqueConflict, doctor, operations, schedules
from awa_django.errors import ConfigurationError
from awa_django.fire_key import FIRE_KEY, FireKey
from awa_django.models import CronJob, HotJob
from awa_django.storage.cron_jobs import cron_jobs

pytestmark = pytest.mark.django_db


def add(name: str, expr: str = "0 3 * * *", timezone: str = "Europe/Madrid", **more: Any) -> None:
    columns = {"name": name, "cron_expr": expr, "timezone": timezone, "kind": "a.report", **more}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO awa.cron_jobs ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
            list(columns.values()),
        )


def awa_cron(*arguments: str) -> str:
    output = StringIO()
    call_command("awa_cron", *arguments, stdout=output)
    return output.getvalue()


def test_pause_stops_fires_and_resume_counts_from_now() -> None:
    add("nightly", last_enqueued_at=datetime.now(UTC) - timedelta(days=3))
    assert schedules.pause("nightly", by="ann\0")
    assert not schedules.pause("nightly", by="bob")
    assert cron_jobs(connection) == []
    assert [(s.state, s.paused_by) for s in schedules.list_schedules()] == [("paused", "ann\ufffd")]
    assert schedules.resume("nightly")
    assert not schedules.resume("nightly")
    [schedule] = cron_jobs(connection)
    assert schedule.since == schedule.now


def test_resume_does_not_take_back_a_mark_of_the_future() -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    add("nightly", last_enqueued_at=later, paused=True)
    schedules.resume("nightly")
    assert CronJob.objects.get().last_enqueued_at == later


def test_run_now_makes_a_job_beside_the_fires() -> None:
    add("nightly", queue="q", args='{"n": 1}', paused=True)
    before = CronJob.objects.values().get()
    first, second = schedules.run_now("nightly", by="ann"), schedules.run_now("nightly", by="ann")
    jobs = HotJob.objects.order_by("pk")
    assert [job.pk for job in jobs] == [first, second]
    assert (jobs[0].kind, jobs[0].queue, jobs[0].args, jobs[0].state) == (
        "a.report", "q", {"n": 1}, "available"
    )  # fmt: skip
    assert "fire_at" not in jobs[0].metadata["awa:cron"]
    assert CronJob.objects.values().get() == before
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []


def keyed(period: timedelta | None = None) -> str:
    return json.dumps({FIRE_KEY: FireKey.of(Unique(period=period), "a.report", queue="q", args={}).to_json()})


@pytest.mark.parametrize("period", [None, timedelta(days=10_000)])
def test_run_now_takes_the_unique_key_or_says_who_has_it(period: timedelta | None) -> None:
    add("nightly", queue="q", metadata=keyed(period))
    before = CronJob.objects.values().get()
    made = HotJob.objects.get(pk=schedules.run_now("nightly", by="ann"))
    assert made.unique_key is not None
    assert bytes(made.unique_key) == Unique(period=period).key("a.report", queue="q", args={}, at=made.run_at)
    assert made.metadata["awa:cron"]["asked_by"] == "ann"
    assert FIRE_KEY not in made.metadata
    for _ in range(2):
        with pytest.raises(UniqueConflict, match=f"job {made.pk} holds") as raised:
            schedules.run_now("nightly")
        assert raised.value.holder_id == made.pk
    said = f"nothing is enqueued: job {made.pk} holds the unique key of this 'a.report' job\n"
    assert awa_cron("run", "nightly") == said
    assert json.loads(awa_cron("run", "nightly", "--json")) == {
        "name": "nightly", "job_id": None, "holder_id": made.pk
    }  # fmt: skip
    assert HotJob.objects.count() == 1
    assert CronJob.objects.values().get() == before
    operations.cancel(made.pk)
    schedules.run_now("nightly")
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []


def test_run_now_of_a_wrong_key_says_so() -> None:
    add("nightly", metadata=json.dumps({FIRE_KEY: 7}))
    with pytest.raises(ConfigurationError, match="awa:unique"):
        schedules.run_now("nightly")
    with pytest.raises(CommandError, match="awa:unique"):
        awa_cron("run", "nightly")


def test_next_fires_follow_the_clock_of_the_database() -> None:
    add("nightly")
    fires = schedules.next_fires("nightly")
    assert len(fires) == 10
    assert fires == sorted(fires)
    assert fires[0] > datetime.now(UTC) - timedelta(minutes=1)
    assert len(schedules.next_fires("nightly", 3)) == 3


@pytest.mark.parametrize("name", ["nobody", "", "x\0y"])
def test_unknown_schedule_is_said_to_be_so(name: str) -> None:
    for verb in (schedules.pause, schedules.resume, schedules.run_now, schedules.next_fires, schedules.find):
        with pytest.raises(ScheduleNotFound) as raised:
            verb(name)
        assert raised.value.name == name


def test_broken_row_is_listed_like_the_others() -> None:
    add("a", expr="nonsense", last_enqueued_at="infinity")
    add("b", timezone="Mars/Olympus", last_enqueued_at="0044-03-15 BC")
    add("c")
    assert [schedule.name for schedule in schedules.list_schedules()] == ["a", "b", "c"]
    with pytest.raises(ConfigurationError, match="nonsense"):
        schedules.next_fires("a")
    lines = awa_cron("list").splitlines()[2:]
    assert ["cannot be computed" in line for line in lines] == [True, True, False]


def test_schedule_that_never_fired_has_no_last_fire() -> None:
    fired_at = datetime(2026, 5, 1, 3, tzinfo=UTC)
    add("a")
    add("b", last_enqueued_at=fired_at)
    assert [schedule.last_fire_at for schedule in schedules.list_schedules()] == [None, fired_at]


def test_command_lists_schedules_with_their_next_fire() -> None:
    assert awa_cron("list") == "Schedules\n  none\n"
    add("nightly", skipped_count=7)
    line = awa_cron("list").splitlines()[-1]
    assert re.split(r"\s{2,}", line)[:6] == [
        "nightly", "0 3 * * *", "Europe/Madrid", "a.report", "default", "active"
    ]  # fmt: skip
    assert " 03:00:00+0" in line
    assert line.endswith("  7")
    [row] = json.loads(awa_cron("list", "--json"))
    assert (row["name"], row["state"], row["missed"], row["skipped_count"]) == (
        "nightly", "active", "coalesce", 7
    )  # fmt: skip
    [fire] = json.loads(awa_cron("next", "nightly", "--count", "1", "--json"))["fires"]
    assert row["next_at"] == fire
    assert fire.endswith("00:00+00:00")


def test_command_shows_next_fires_in_both_clocks() -> None:
    add("nightly")
    lines = awa_cron("next", "nightly").splitlines()
    assert len(lines) == 10
    assert all(" 03:00:00+0" in line and line.endswith("00:00 UTC)") for line in lines)
    assert len(awa_cron("next", "nightly", "--count", "2").splitlines()) == 2
    with pytest.raises(CommandError, match="1 or more"):
        awa_cron("next", "nightly", "--count", "0")


def test_command_pauses_resumes_and_runs() -> None:
    add("nightly")
    assert awa_cron("pause", "nightly") == "nightly is paused\n"
    assert awa_cron("pause", "nightly") == "nightly was paused already\n"
    assert awa_cron("run", "nightly") == f"job {HotJob.objects.get().pk} is enqueued\n"
    assert awa_cron("resume", "nightly") == "nightly is resumed\n"
    assert awa_cron("resume", "nightly") == "nightly was not paused\n"
    with pytest.raises(CommandError, match="no schedule 'x'"):
        awa_cron("run", "x")
    assert json.loads(awa_cron("pause", "nightly", "--json")) == {
        "name": "nightly", "paused": True, "changed": True
    }  # fmt: skip
    assert json.loads(awa_cron("--json", "resume", "nightly")) == {
        "name": "nightly", "paused": False, "changed": True
    }  # fmt: skip
    assert json.loads(awa_cron("run", "nightly", "--json"))["job_id"] == HotJob.objects.latest("pk").pk
