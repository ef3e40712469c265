"""The page of one job: why it waits, what happened to it, how far it is; and what its script asks for."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django import operations
from awa_django.models import Job
from tests.admin.conftest import Login
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

KEY = bytes(range(16))


def url(job_id: int, view: str = "change", model: str = "job") -> str:
    return reverse(f"admin:awa_{model}_{view}", args=[job_id])


def show(client: Client, job_id: int, view: str = "change") -> str:
    answer = client.get(url(job_id, view))
    assert answer.status_code == 200
    return answer.content.decode()


def context(client: Client, job_id: int) -> Any:
    return client.get(url(job_id)).context


def titles(client: Client, job_id: int) -> list[str]:
    return [event.title for event in context(client, job_id)["timeline"].events]


def test_it_says_why_a_job_waits(root: Client) -> None:
    job_id = insert_job(queue="mail")
    operations.pause_queue("mail", by="ann")
    page = show(root, job_id)
    assert "Why has it not run?" in page
    assert "is paused by ann" in page
    assert "What is it doing?" in show(root, insert_job("running"))
    assert "Why has it not run?" not in show(root, insert_job("failed"))


def test_it_links_the_job_that_holds_the_key(root: Client, login: Login) -> None:
    holder = insert_job("completed", unique_key=KEY, unique_states="11111111")
    job_id = insert_job("scheduled", unique_key=KEY, unique_states="01100000")
    link = f'href="{url(holder)}"'
    assert show(root, job_id).count(link) == 2  # the reason, and the key
    client = login("view_deferredjob")
    assert link not in client.get(url(job_id, model="deferredjob")).content.decode()


def test_the_timeline_tells_each_attempt_with_its_wait_and_duration(root: Client) -> None:
    entries = [
        {
            "error": "no route", "class": "OSError", "traceback": f"trace-{n}", "outcome": "retried",
            "attempt": n, "run_lease": n, "worker": "w/7", "at": f"2026-05-01T10:0{n}:30+00:00",
            "attempted_at": f"2026-05-01T10:0{n}:00+00:00",
        }
        for n in (1, 2)
    ]  # fmt: skip
    job_id = insert_job("retryable", attempt=2, max_attempts=5, errors=entries)
    update_job(job_id, created_at="'2026-05-01 10:00+00'", run_at="'2999-01-01 00:00+00'")
    events = context(root, job_id)["timeline"].events
    assert [event.title for event in events] == [
        "Attempt 3 of 5: is due", "Attempt 2: retried", "Attempt 1: retried", "Enqueued",
    ]  # fmt: skip
    due, second, first, _enqueued = events
    assert due.is_next
    assert first.spans == "began 1 min after it was enqueued, took 30 s"
    assert second.spans == "began 30 s after the last one ended, took 30 s"
    assert (second.who, second.class_name, second.message) == ("w/7", "OSError", "no route")
    assert (second.is_open, first.is_open) == (True, False)  # the newest traceback
    assert second.at == datetime(2026, 5, 1, 10, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "title"),
    [
        ("available", "Attempt 1 of 25: waits for a worker"),
        ("scheduled", "Attempt 1 of 25: is due"),
        ("running", "Attempt 1 of 25: runs"),
        ("completed", "Attempt 1: completed"),
        ("failed", "Failed"),
        ("cancelled", "Cancelled"),
        ("waiting_external", "Waits for something outside of the queue"),
    ],
)
def test_the_timeline_begins_with_what_is_now(state: str, title: str, root: Client) -> None:
    assert titles(root, insert_job(state)) == [title, "Enqueued"]


def test_a_run_that_completed_tells_its_wait_and_duration(root: Client) -> None:
    job_id = insert_job("completed", worker="w/7")
    update_job(job_id, run_at="now() - interval '1 h'", attempted_at="now() - interval '50 min'")
    update_job(job_id, created_at="run_at", finalized_at="attempted_at + interval '90 s'")
    [completed, _enqueued] = context(root, job_id)["timeline"].events
    assert completed.spans == "began 10 min after it was due, took 1 min 30 s"
    assert completed.who == "w/7"


def test_an_end_that_has_an_entry_is_told_once(root: Client) -> None:
    job_id = insert_job("running")
    operations.cancel(job_id, by="ann", reason="wrong price")
    assert titles(root, job_id) == ["Attempt 1: cancelled", "Enqueued"]


def test_what_was_done_in_the_admin_stands_at_its_time(root: Client) -> None:
    job_id = insert_job("failed")
    update_job(job_id, created_at="now() - interval '2 h'")
    LogEntry.objects.create(
        user=User.objects.get(username="root"), content_type=ContentType.objects.get_for_model(Job),
        object_id=str(job_id), object_repr="x", action_flag=CHANGE, change_message="Retry: changed.",
    )  # fmt: skip
    LogEntry.objects.update(action_time=datetime(2026, 1, 1, tzinfo=UTC))
    update_job(job_id, created_at="'2025-12-31 00:00+00'")
    assert titles(root, job_id) == ["Failed", "Retry: changed.", "Enqueued"]


def test_of_very_many_errors_the_newest_are_shown(root: Client) -> None:
    job_id = insert_job("failed", errors=[{"error": "no", "attempt": n} for n in range(1, 61)])
    shown = context(root, job_id)["timeline"]
    assert shown.hidden_count == 10
    told = [event.title for event in shown.events if event.title.startswith("Attempt")]
    assert (told[0], told[-1], len(told)) == ("Attempt 60", "Attempt 11", 50)


@pytest.mark.parametrize(
    "errors",
    [
        "ARRAY['3'::jsonb, NULL, '\"text\"', '{}', '[]']",
        "ARRAY[ARRAY['{}'::jsonb], ARRAY['{\"at\": \"2026-01-01T00:00:00Z\"}'::jsonb]]",
        """ARRAY['{"at": "0001-01-01T00:00:00Z", "attempted_at": "9999-12-31T23:59:59-09:00"}']::jsonb[]""",
        """ARRAY['{"at": "2026-01-01", "attempt": {"a": [1]}, "error": null, "outcome": ["x"]}'::jsonb]""",
    ],
)
@pytest.mark.parametrize("state", ["failed", "retryable"])
def test_entries_of_another_kind_are_shown_all_the_same(errors: str, state: str, root: Client) -> None:
    job_id = insert_job(state)
    update_job(job_id, errors=errors)
    assert "Enqueued" in titles(root, job_id)


@pytest.mark.parametrize(
    ("stored", "percent", "message", "rest"),
    [
        ({"percent": 40, "message": "page 2"}, 40, "page 2", ""),
        ({"percent": 12.5, "checkpoint": [2**70]}, 12.5, "", f'{{"checkpoint": [{2**70}]}}'),
        ({"message": "password=hunter2"}, None, "password=********", ""),
        ({"percent": 101}, None, "", '{"percent": 101}'),
        ({"percent": 10**400}, None, "", json.dumps({"percent": 10**400})),
        ({"percent": True, "message": 7}, None, "", '{"message": 7, "percent": true}'),
        ({"more": 1, "percent": 3}, 3, "", '{"more": 1, "percent": 3}'),
        (["a"], None, "", '["a"]'),
        ("a", None, "", '"a"'),
    ],
)
def test_progress_is_shown_as_far_as_it_is_one(
    stored: Any, percent: float | None, message: str, rest: str, root: Client
) -> None:
    job_id = insert_job("running")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.jobs_hot SET progress = %s::jsonb", [json.dumps(stored)])
    progress = context(root, job_id)["progress"]
    assert (progress.percent, progress.message) == (percent, message)
    assert json.loads(progress.rest or "{}") == json.loads(rest or "{}")
    assert ("<progress" in show(root, job_id)) == (percent is not None)


def test_numbers_and_texts_are_exactly_those_that_are_stored(root: Client) -> None:
    texts = ["1000000000000000000000000000000", "-1.10", "1e-7", "12345678901234567890.123456789", "0.30000"]
    deep = "[" * 300 + "]" * 300
    job_id = insert_job()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE awa.jobs_hot SET args = %s::jsonb",
            [f'{{"numbers": [{", ".join(texts)}], "half a pair": "\\\\ud83d", "so very deep": {deep}}}'],
        )
        cursor.execute("SELECT args ->> 'numbers' FROM awa.jobs_hot")
        stored = cursor.fetchone()[0]
    page = show(root, job_id)
    for number in json.loads(stored, parse_float=str, parse_int=str):
        assert f"{number}\n" in page or f"{number},\n" in page
    assert texts[0] in page
    assert "12345678901234567890.123456789" in page
    assert "\\ud83d" in page
    assert page.count("[\n") >= 300


def test_the_live_parts_are_those_of_the_page(root: Client) -> None:
    job_id = insert_job("running", progress={"percent": 40})
    page, live = show(root, job_id), show(root, job_id, "live")
    names = re.compile(r'data-live="(\w+)"')
    assert set(names.findall(page)) == {"state", "actions", "why", "progress", "facts", "timeline", "data"}
    assert set(names.findall(live)) == set(names.findall(page)) - {"data"}
    assert "<html" not in live
    assert 'data-refresh="2"' in live
    assert "awa/job.js" in page


def test_a_job_that_has_ended_is_asked_for_no_more(root: Client) -> None:
    job_id = insert_job("completed", result={"sum": 42})
    live = show(root, job_id, "live")
    assert 'data-refresh="0"' in live
    assert "42" in live  # its result has come
    assert "awa/job.js" not in show(root, job_id)


@pytest.mark.parametrize(
    ("run_at", "seconds"), [("now() + interval '5 s'", 2), ("now() + interval '1 h'", 15)]
)
def test_a_job_that_waits_for_long_is_asked_for_seldom(run_at: str, seconds: int, root: Client) -> None:
    job_id = insert_job("scheduled")
    update_job(job_id, run_at=run_at)
    assert f'data-refresh="{seconds}"' in show(root, job_id, "live")


def test_the_live_parts_follow_a_job_to_the_other_table(root: Client) -> None:
    job_id = insert_job("scheduled")
    operations.run_now(job_id)
    answer = root.get(url(job_id, "live", "deferredjob"), follow=True)
    assert answer.redirect_chain == [(url(job_id, "live", "hotjob"), 302)]
    assert url(job_id, "live", "hotjob") in answer.content.decode()


@pytest.mark.parametrize("model", ["hotjob", "job"])
def test_the_live_parts_need_the_permission_of_the_page(model: str, login: Login) -> None:
    job_id = insert_job("running")
    others = {"hotjob": "view_job", "job": "view_hotjob"}
    assert login(others[model]).get(url(job_id, "live", model)).status_code == 403
    assert login().get(url(job_id, "live", model)).status_code == 403
    assert Client().get(url(job_id, "live", model)).status_code == 302  # to the login
    client = login(f"view_{model}")
    assert client.get(url(job_id, "live", model)).status_code == 200
    assert client.post(url(job_id, "live", model)).status_code == 405
    assert client.get(url(2**40, "live", model)).status_code == 404


@pytest.mark.parametrize("state", ["available", "scheduled", "running", "failed"])
def test_a_page_takes_eight_statements_at_most(state: str, login: Login) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.runtime_instances "
            "(name, supervisor, hostname, pid, version, queues, concurrency) "
            "VALUES ('w/1', 'w', 'h', 1, '0', '{default}', 8)"
        )
    client = login("view_job", "view_hotjob", "view_deferredjob", "cancel_job")
    job_id = insert_job(state, unique_key=KEY, unique_states="11101001")
    for view in ("change", "live"):
        show(client, job_id, view)
        with CaptureQueriesContext(connection) as queries:
            show(client, job_id, view)
        # The transaction round them is a savepoint within that of the test.
        around = ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
        sent = [query["sql"] for query in queries if not query["sql"].startswith(around)]
        assert len(sent) <= 8, sent
