"""A secret in every place that a page reads is on no page, in no message and in no record of the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.urls import reverse
from psycopg.types.json import Jsonb

from tests.admin.hostile import details, filtered, lists
from tests.admin.routes import ACCESS, PAGES
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

SECRET = "hunter2-4000-1234"
# In a text only: nothing else tells that it is one.
TOLD = "swordfish-77"
PRIVATE = "ann-at-home"


def columns() -> dict[str, Any]:
    """A secret by its key, by its place in a text and by declaration; and what is only private."""
    keyed = {"password": SECRET, "deep": [{"api_key": [SECRET]}], "Authorization": {"x": SECRET}}
    text = f"password={TOLD} at postgres://shop:{TOLD}@db/shop, token: '{TOLD}', {SECRET} of {PRIVATE}"
    return {
        "args": {**keyed, "card": SECRET, "who": PRIVATE},
        "metadata": {**keyed, "awa:secret": ["card"], "who": PRIVATE},
        "progress": {**keyed, "message": text},
        "result": Jsonb({**keyed, "who": PRIVATE}),
        "errors": [{"error": text, "traceback": text, "class": "E", "outcome": "failed", "more": keyed}],
    }


@pytest.fixture
def jobs() -> dict[str, int]:
    found = {
        "hotjob": insert_job("failed", **columns()),
        "deferredjob": insert_job("retryable", **columns()),
        "job": insert_job("completed", **columns()),
    }
    insert_job("running", **columns())
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, kind, queue, args, metadata) "
            "VALUES ('nightly', '@daily', 'tests.job', 'default', %s, %s)",
            [json.dumps(columns()["args"]), json.dumps(columns()["metadata"])],
        )
    return found


def assert_hidden(text: str, where: str) -> None:
    assert SECRET not in text, where
    assert TOLD not in text, where


@pytest.mark.fault(
    "F87",
    injected="secrets by name, by declaration and in texts of errors, tracebacks and DSNs, on each page",
)
def test_no_page_shows_a_secret_and_no_list_an_argument(root: Client, jobs: dict[str, int]) -> None:
    for url in [*lists(), *filtered("tests.job")]:
        page = root.get(url, follow=True).content.decode()
        assert_hidden(page, url)
        assert PRIVATE not in page, url
    shown = 0
    for name, job_id in jobs.items():
        for url in details(name, job_id):
            page = root.get(url, follow=True).content.decode()
            assert_hidden(page, url)
            shown += PRIVATE in page
    assert shown >= len(jobs)


@pytest.mark.fault("F87", injected="the same, in questions, messages and the admin's log")
def test_no_question_message_or_record_shows_a_secret(root: Client, jobs: dict[str, int]) -> None:
    answers = []
    for name in jobs:
        url = reverse(f"admin:awa_{name}_changelist")
        for action in PAGES[name].job_actions:  # type: ignore[attr-defined]
            target = insert_job("retryable" if name == "deferredjob" else "failed", **columns())
            data = {"action": action, ACTION_CHECKBOX_NAME: target, "index": "0", "from_detail": "1"}
            answers.append(root.post(url, data, follow=True))
            answers.append(root.post(url, {**data, "confirmed": "1"}, follow=True))
    for route, access in ACCESS.items():
        name = route.split("_")[1]
        if access.write is not None and name in jobs:
            url = reverse(f"admin:{route}", args=[jobs[name]])
            changed = {**access.data, "args": f'{{"password": "{SECRET}!", "who": "nobody"}}'}
            for data in (changed, {**access.data, "args": '{"password": '}):
                answers.append(root.post(url, data, follow=True))
    for answer in answers:
        page = answer.content.decode()
        assert_hidden(page, answer.request["PATH_INFO"])
    assert LogEntry.objects.exists()
    for entry in LogEntry.objects.all():
        assert_hidden(f"{entry.object_repr} {entry.change_message}", "the record")
