"""The actions: what they change, what they say, and what they leave in the log."""

from __future__ import annotations

import re
from datetime import timedelta
from html import escape, unescape
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from awa_django import operations
from awa_django.admin import ticked
from awa_django.models import DeferredJob, HotJob, Job, QueueMeta
from awa_django.storage.claim import ClaimRequest, claim
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db

KEY = bytes(16)


def post(client: Client, model: Any, action: str, ids: list[Any], **data: str) -> Any:
    url = reverse(f"admin:awa_{model._meta.model_name}_changelist")
    return client.post(url, {"action": action, ACTION_CHECKBOX_NAME: ids, "index": "0", **data})


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_retry_reports_each_job_that_had_moved_on(root: Client) -> None:
    failed, running = insert_job("failed"), insert_job("running")
    loser = insert_job("cancelled", unique_key=KEY, unique_states="11101001")
    holder = insert_job(unique_key=KEY, unique_states="11101001")
    response = post(root, HotJob, "retry_jobs", [failed, running, loser, 10**12])
    assert response.status_code == 302
    [message] = said(response)
    assert message == (
        f"Retry: 1 changed, 3 had moved on or could not be: job {running} is running; "
        f"job {loser} its unique key is held by job {holder}; job {10**12} does not exist."
    )
    assert HotJob.objects.get(pk=failed).state == "available"
    user = User.objects.get(username="root")
    assert set(
        LogEntry.objects.values_list("user", "object_id", "object_repr", "action_flag", "change_message")
    ) == {
        (user.pk, str(failed), f"job {failed}", CHANGE, "Retry: changed."),
        (user.pk, str(running), f"job {running}", CHANGE, "Retry: left alone: is running."),
        (
            user.pk,
            str(loser),
            f"job {loser}",
            CHANGE,
            f"Retry: left alone: its unique key is held by job {holder}.",
        ),
        (user.pk, str(10**12), f"job {10**12}", CHANGE, "Retry: left alone: does not exist."),
    }


def test_cancel_asks_first(root: Client) -> None:
    job_id = insert_job("running")
    asked = post(root, HotJob, "cancel_jobs", [job_id])
    assert asked.status_code == 200
    assert "A running handler is told" in asked.content.decode()
    assert HotJob.objects.get(pk=job_id).state == "running"
    done = post(root, HotJob, "cancel_jobs", [job_id], confirmed="1")
    assert said(done) == ["Cancel: 1 changed."]
    assert HotJob.objects.get(pk=job_id).errors[0]["by"] == "root"


def test_a_form_sent_twice_does_no_more(root: Client) -> None:
    job_id = insert_job()
    assert said(post(root, HotJob, "cancel_jobs", [job_id], confirmed="1"))[-1] == "Cancel: 1 changed."
    again = post(root, HotJob, "cancel_jobs", [job_id], confirmed="1")
    assert "0 changed, 1 had moved on" in said(again)[-1]


def test_a_job_that_left_the_page_is_reported_not_forgotten(root: Client) -> None:
    """The ids ticked count, not the rows that still match the page and its filter."""
    job_id = insert_job("scheduled")
    url = reverse("admin:awa_hotjob_changelist") + "?state=failed"
    response = root.post(url, {"action": "retry_jobs", ACTION_CHECKBOX_NAME: [job_id], "index": "0"})
    assert said(response) == [f"Retry: 0 changed, 1 had moved on or could not be: job {job_id} is scheduled."]
    assert response["Location"] == url


@pytest.mark.parametrize("ids", [["abc"], ["-1"], ["1.5", "9" * 30], ["²"]])
def test_what_is_no_id_is_refused(ids: list[str], root: Client) -> None:
    response = post(root, HotJob, "retry_jobs", ids)
    assert said(response) == ["Select between 1 and 1,000 jobs."]


def test_too_many_ids_are_refused(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticked, "LARGEST_SELECTION", 2)
    ids = [insert_job("failed") for _ in range(3)]
    post(root, HotJob, "retry_jobs", ids)
    assert not HotJob.objects.exclude(state="failed").exists()


def test_priority_is_asked_for_and_checked(root: Client) -> None:
    job_id = insert_job("scheduled")
    assert b"id_priority" in post(root, DeferredJob, "set_priority_of_jobs", [job_id]).content
    wrong = post(root, DeferredJob, "set_priority_of_jobs", [job_id], confirmed="1", priority="103")
    assert b"less than or equal to 102" in wrong.content
    post(root, DeferredJob, "set_priority_of_jobs", [job_id], confirmed="1", priority="-98")
    assert DeferredJob.objects.get(pk=job_id).priority == -98
    assert LogEntry.objects.get().change_message == "Set priority, priority -98: changed."


def test_reschedule_moves_the_job_and_its_page(root: Client) -> None:
    job_id = insert_job()
    data = {"confirmed": "1", "run_at_0": "2030-01-02", "run_at_1": "10:00", "from_detail": "1"}
    response = post(root, HotJob, "reschedule_jobs", [job_id], **data)
    assert DeferredJob.objects.get(pk=job_id).run_at.year == 2030
    page = root.get(response["Location"])
    assert page["Location"] == reverse("admin:awa_deferredjob_change", args=[job_id])
    assert b"Reschedule, run_at 2030-01-02" in root.get(page["Location"]).content  # its log


def test_what_has_moved_on_since_it_was_asked_about_is_not_deleted(root: Client) -> None:
    """A colleague retries a failed job, and one that waited fails: neither is what was meant."""
    retried, gone = insert_job("failed"), insert_job("failed")
    failed, waits = insert_job(), insert_job("scheduled")
    ids = [retried, gone, failed, waits, 2**63]
    page = post(root, Job, "delete_jobs", ids).content.decode()
    ended = re.search(r'name="ended_jobs" value="([^"]*)"', page)
    assert ended
    assert ended[1] == f"{retried} {gone}"
    operations.retry(retried)
    update_job(failed, state="'failed'", finalized_at="now()")
    response = post(root, Job, "delete_jobs", ids, confirmed="1", ended_jobs=ended[1])
    left = f"job {retried} is available; job {failed} is failed; job {2**63} does not exist."
    assert said(response)[-1].endswith(left)
    assert set(Job.objects.values_list("pk", flat=True)) == {retried, failed}


def test_only_a_deletion_asks_what_had_ended(root: Client) -> None:
    job_id = insert_job()
    assert "ended_jobs" not in post(root, Job, "cancel_jobs", [job_id]).content.decode()


RANGE = "must be between 0001-02-01 and 9999-12-01"
NO_HOUR = "interpreted in time zone Europe/Berlin; it may be ambiguous or it may not exist."


@pytest.mark.parametrize(
    ("date", "time", "problem"),
    [
        ("9999-12-31", "23:59:59", f"{RANGE}, not 9999-12-31 23:59:59+01:00"),
        ("0001-01-01", "00:00", RANGE),
        ("2027-03-28", "02:30", NO_HOUR),  # the clocks skip it
        ("2027-10-31", "02:30", NO_HOUR),  # and have this one twice
        ("2027-02-30", "10:00", "Enter a valid date."),
        ("10000-01-01", "10:00", "Enter a valid date."),
    ],
)
def test_an_instant_that_is_none_is_an_answer_not_an_error(
    date: str, time: str, problem: str, root: Client, settings: Any
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    job_id = insert_job()
    data = {"confirmed": "1", "run_at_0": date, "run_at_1": time}
    response = post(root, HotJob, "reschedule_jobs", [job_id], **data)
    assert said(response) == []
    assert problem in response.content.decode()
    assert reload_job(job_id).state == "available"
    if not date.startswith("0001"):  # for a pause it has passed
        [message] = said(
            root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "m", "until": f"{date}T{time}"})
        )
        assert problem.removesuffix(".") in message or "Enter a valid date/time." in message
    assert not QueueMeta.objects.exists()


def test_move_and_a_name_that_is_no_queue(root: Client) -> None:
    job_id = insert_job()
    wrong = post(root, Job, "move_jobs", [job_id], confirmed="1", queue="x" * 201)
    assert b"at most 200" in wrong.content
    post(root, Job, "move_jobs", [job_id], confirmed="1", queue="<other>")
    assert HotJob.objects.get(pk=job_id).queue == "<other>"


def test_delete_logs_a_deletion_and_goes_to_the_list(root: Client) -> None:
    job_id = insert_job("completed")
    response = post(root, Job, "delete_jobs", [job_id], confirmed="1", from_detail="1")
    assert response["Location"] == reverse("admin:awa_job_changelist")
    assert not Job.objects.exists()
    assert LogEntry.objects.get().action_flag == DELETION


def test_who_sees_to_jobs_one_by_one_comes_back_to_the_list_as_it_was(root: Client) -> None:
    """The failed jobs of a queue, each opened and deleted: every time the list of all jobs came."""
    kept, gone = insert_job("failed", queue="mail"), insert_job("failed", queue="mail")
    query = "?queue=mail&state=failed"
    url = reverse("admin:awa_hotjob_changelist") + query

    def page_of(job_id: int) -> str:
        links = re.findall(r'href="([^"]+/change/[^"]*)"', root.get(url).content.decode())
        [link] = {unescape(each) for each in links if f"/{job_id}/" in each}
        return link

    def press(page: str, name: str, job_id: int, **data: str) -> Any:
        shown = root.get(page).content.decode()
        assert shown.count(f'href="{escape(url)}"') == 1  # where it says of which list the page is
        assert f'data-url="{escape(page.replace("/change/", "/live/"))}"' in shown
        forms = re.findall(r'<form method="post" action="([^"]+)"', shown)
        assert {unescape(address) for address in forms} == {url}
        given = {"action": name, ACTION_CHECKBOX_NAME: str(job_id), "index": "0", "from_detail": "1", **data}
        return root.post(url, given)

    page = page_of(gone)
    asked = press(page, "delete_jobs", gone).content.decode()
    assert f'href="{escape(page)}" class="closelink"' in asked
    assert press(page, "delete_jobs", gone, confirmed="1")["Location"] == url
    page = page_of(kept)
    assert press(page, "retry_jobs", kept)["Location"] == page

    arguments = page.replace("/change/", "/arguments/")
    assert f'href="{escape(arguments)}"' in root.get(page).content.decode()
    edited = root.get(arguments).content.decode()
    assert f'href="{escape(page)}" class="closelink"' in edited
    seen = re.search(r'name="seen" value="([^"]+)"', edited)
    assert seen
    assert root.post(arguments, {"args": '{"a": 1}', "seen": seen[1]})["Location"] == page


def test_the_log_and_the_change_stand_or_fall_together(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = insert_job("failed")

    def fail(*_: object) -> None:
        raise RuntimeError("no log")

    monkeypatch.setattr(ticked, "log", fail)
    with pytest.raises(RuntimeError, match="no log"):
        post(root, HotJob, "retry_jobs", [job_id])
    assert HotJob.objects.get(pk=job_id).state == "failed"


def test_pause_and_resume_say_and_log_what_they_did(root: Client) -> None:
    pause, resume = (reverse(f"admin:awa_queuemeta_{verb}") for verb in ("pause", "resume"))
    assert said(root.post(pause, {"queue": "mail"}))[-1] == "Queue mail is paused."
    assert QueueMeta.objects.get(pk="mail").paused_by == "root"
    assert said(root.post(pause, {"queue": "mail"}))[-1] == "Queue mail is paused already."
    assert said(root.post(resume, {"queue": "mail"}))[-1] == "Queue mail is resumed."
    assert said(root.post(resume, {"queue": "mail"}))[-1] == "Queue mail is resumed already."
    assert "1 to 200" in said(root.post(pause, {"queue": ""}))[-1]
    assert LogEntry.objects.filter(object_id="mail").count() == 4


def test_a_pause_ends_by_itself_when_it_was_said_to(root: Client) -> None:
    pause = reverse("admin:awa_queuemeta_pause")
    assert re.fullmatch(
        r"Queue mail is paused until 20\d\d-\d\d-\d\d \d\d:\d\d \w+\.",
        said(root.post(pause, {"queue": "mail", "lasts": "900"}))[-1],
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT paused_until - now() FROM awa.queue_meta")
        assert timedelta(minutes=14) < cursor.fetchone()[0] <= timedelta(minutes=15)
    page = root.get(reverse("admin:awa_queuemeta_changelist")).content.decode()
    assert "in 14 min" in page
    root.post(pause, {"queue": "mail", "until": "2090-05-01T09:30"})
    until = QueueMeta.objects.get(pk="mail").paused_until
    assert until is not None
    assert timezone.localtime(until).isoformat()[:16] == "2090-05-01T09:30"
    assert "until 2090-05-01 09:30" in LogEntry.objects.latest("pk").change_message


def test_a_pause_does_not_shorten_one_that_somebody_else_began_meanwhile(root: Client) -> None:
    pause, five_minutes = reverse("admin:awa_queuemeta_pause"), {"queue": "mail", "lasts": "300"}
    operations.pause_queue("mail", by="ann")
    said_then = said(root.post(pause, five_minutes))[-1]
    assert said_then == "Queue mail is paused until it is resumed already by ann: resume it first."
    assert QueueMeta.objects.get(pk="mail").paused_until is None
    operations.pause_queue("mail", by="ann", until=timezone.now() + timedelta(hours=1))
    assert "resume it first" in said(root.post(pause, five_minutes))[-1]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.queue_meta SET paused_until = now()")  # that one is over
    assert said(root.post(pause, five_minutes))[-1].startswith("Queue mail is paused until 2")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"lasts": "900", "until": "2090-05-01T09:30"}, "not both"),
        ({"until": "2001-01-01T00:00"}, "has passed"),
        ({"until": "soon"}, "Enter a valid date/time"),
        ({"lasts": "17"}, "Select a valid choice"),
        ({"until": "9999-12-31T00:00"}, "must be between 0001-02-01 and 9999-12-01, not 9999-12-31 00:00:00"),
    ],
)
def test_an_end_that_is_none_pauses_nothing(data: dict[str, str], problem: str, root: Client) -> None:
    [message] = said(root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "mail", **data}))
    assert problem in message
    assert not QueueMeta.objects.exists()
    assert not LogEntry.objects.exists()


def test_jobs_are_claimed_again_when_a_pause_has_ended(root: Client) -> None:
    job_id = insert_job(queue="mail")
    root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "mail", "lasts": "300"})
    request = ClaimRequest(limits={"mail": 1}, total=1, worker="w")
    assert claim(connection, request) == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.queue_meta SET paused_until = now()")
    assert [job.id for job in claim(connection, request)] == [job_id]
