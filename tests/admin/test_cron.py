"""The page of schedules: what it shows, and who may pause, resume and run them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django import Unique
from awa_django.fire_key import FIRE_KEY, FireKey
from awa_django.models import CronJob, HotJob
from tests.admin.conftest import Login

pytestmark = pytest.mark.django_db

URL = "admin:awa_cronjob_changelist"
HARMLESS = "<b>'a\"/%s"


@pytest.fixture(autouse=True)
def schedules(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, timezone, kind, missed, skipped_count, declared_at) "
            "VALUES ('nightly', '30 2 * * *', 'Europe/Madrid', 'k', 'catch_up', 1234, now()), "
            "('gone', '@daily', 'UTC', 'k', 'skip', 0, now() - interval '5 minutes'), "
            "(%s, '@daily', 'UTC', 'k', 'coalesce', 0, NULL)",
            [HARMLESS],
        )


def act(client: Client, action: str, *names: str) -> str:
    data: dict[str, Any] = {"action": action, ACTION_CHECKBOX_NAME: names, "index": "0"}
    return str(client.post(reverse(URL), data, follow=True).content.decode())


def test_page_shows_the_next_ten_fires_in_the_zone_of_the_schedule(root: Client) -> None:
    page = root.get(reverse(URL)).content.decode()
    assert page.count("02:30:00 CE") + page.count("03:00:00 CEST") == 11
    assert "catch_up, 100; 1,234 skipped" in page
    for state in ("active", "undeclared"):
        assert f">{state}</span>" in page
    assert HARMLESS not in page


@pytest.mark.parametrize("name", ["nightly", HARMLESS])
def test_pause_resume_and_run_do_what_they_say_and_are_logged(name: str, root: Client) -> None:
    act(root, "pause_schedules", name)
    row = CronJob.objects.get(name=name)
    assert (row.paused, row.paused_by) == (True, "root")
    assert row.paused_at is not None
    assert "Nothing to change" in act(root, "pause_schedules", name)

    act(root, "run_schedules_now", name)  # though it is paused
    job = HotJob.objects.get()
    assert job.metadata["awa:cron"]["name"] == name
    assert job.metadata["awa:cron"]["asked_by"] == "root"

    act(root, "resume_schedules", name)
    row = CronJob.objects.get(name=name)
    assert (row.paused, row.paused_by, row.paused_at) == (False, None, None)
    said = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    assert said == [
        "Paused the schedule.", f"Enqueued job {job.pk} of the schedule.", "Resumed the schedule."
    ]  # fmt: skip


def test_run_now_says_which_job_holds_the_unique_key(root: Client) -> None:
    key = {FIRE_KEY: FireKey.of(Unique(), "k", queue="default", args={}).to_json()}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.cron_jobs SET metadata = %s WHERE name <> 'gone'", [json.dumps(key)])
    act(root, "run_schedules_now", "nightly")
    job = HotJob.objects.get()
    page = act(root, "run_schedules_now", "gone", "nightly", HARMLESS)
    assert page.count(f"job {job.pk} holds its unique key") == 2
    assert HARMLESS not in page
    assert HotJob.objects.exclude(pk=job.pk).get().metadata["awa:cron"]["name"] == "gone"
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize(
    ("action", "permission", "other"),
    [
        ("pause_schedules", "pause_cronjob", "run_cronjob"),
        ("resume_schedules", "pause_cronjob", "run_cronjob"),
        ("run_schedules_now", "run_cronjob", "pause_cronjob"),
    ],
)
def test_each_action_needs_its_permission(action: str, permission: str, other: str, login: Login) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.cron_jobs SET paused = (%s = 'resume_schedules')", [action])
    before = list(CronJob.objects.values().order_by("name"))
    viewer = login("view_cronjob")
    assert b'name="action"' not in viewer.get(reverse(URL)).content
    for client in (login(permission), viewer, login("view_cronjob", other)):
        act(client, action, "nightly")
        assert list(CronJob.objects.values().order_by("name")) == before
        assert not HotJob.objects.exists()
    act(login("view_cronjob", permission), action, "nightly")
    assert HotJob.objects.exists() or list(CronJob.objects.values().order_by("name")) != before
