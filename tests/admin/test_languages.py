"""The pages in other languages: still safe, and what they write into rows is English."""

from __future__ import annotations

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import translation

from awa_django import operations
from awa_django.admin.words import grouped
from awa_django.models import Job
from awa_django.why import explain
from tests.admin.hostile import HOSTILE, empty, fill, harmless, lists
from tests.admin.test_hostile import by_text, visit
from tests.factories import insert_job, reload_job

pytestmark = pytest.mark.django_db

# Of the hostile texts those that end an attribute or an element, and a tag of templates.
TRIED = (HOSTILE[4], HOSTILE[28])


def test_hostile_texts_are_only_text_in_a_translation(root: Client) -> None:
    plain = tuple(harmless(number) for number in range(len(TRIED)))
    with translation.override("de"):
        hot, deferred = fill(plain)
        each = [by_text(text, hot[n], deferred[n], n) for n, text in enumerate(plain)]
        empty()
        cache.clear()
        hot, deferred = fill(TRIED)
        visit(root, lists(), TRIED)
        for n, text in enumerate(TRIED):
            assert by_text(text, hot[n], deferred[n], n) == each[n], text


def test_a_page_is_german(root: Client) -> None:
    job_id = insert_job(queue="post", kind="shop.ship")
    insert_job("failed")
    with translation.override("de"):
        page = root.get(reverse("admin:awa_job_change", args=[job_id])).content.decode()
        jobs = root.get(reverse("admin:awa_hotjob_changelist")).content.decode()
        assert grouped(12_345) == "12.345"
        reason = explain(job_id)[0]
    assert "Warum ist er nicht gelaufen?" in page
    assert "Kein einziger Worker läuft, also bedient niemand seine Warteschlange post." in page
    assert reason.text in page
    assert reason.code == "unknown_kind"
    assert "fehlgeschlagen" in jobs
    assert "2 aktuelle Jobs" in " ".join(jobs.split())
    assert grouped(12_345) == "12,345"


def test_what_a_german_does_is_logged_in_english(root: Client) -> None:
    job_id = insert_job("failed")
    running = insert_job("running")
    url = reverse("admin:awa_job_changelist")
    data = {"action": "retry_jobs", "index": "0", ACTION_CHECKBOX_NAME: [job_id, running]}
    with translation.override("de"):
        said = " ".join(map(str, root.post(url, data, follow=True).context["messages"]))
        root.post(url, {**data, "action": "set_priority_of_jobs", "confirmed": "1", "priority": "3"})
        root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "post", "lasts": "300"})
        bulk = {"action": "cancel_jobs", "index": "0", "select_across": "1", ACTION_CHECKBOX_NAME: "0"}
        asked = root.post(f"{url}?state=running", bulk)
        confirmed = {**bulk, "confirmed": "1", "selection": asked.context["selection"]}
        root.post(f"{url}?state=running", confirmed)
    assert f"Wiederholen: 1 geändert, 1 schon anderswo oder nicht änderbar: Job {running} läuft." in said
    logged = set(LogEntry.objects.values_list("change_message", flat=True))
    assert "Retry: changed." in logged
    assert "Retry: left alone: is running." in logged
    assert "Set priority, priority 3: changed." in logged
    assert "Cancel, all that match (all jobs: state running): started." in logged
    assert any(message.startswith("Queue is paused until 2") for message in logged)


def test_what_an_operation_answers_is_english_in_every_language() -> None:
    job_id = insert_job("running")
    with translation.override("de"):
        [refusal] = operations.retry(job_id).refused
        operations.cancel(job_id, reason="too late")
    assert refusal.reason == "is running"
    assert reload_job(job_id).errors[-1]["error"] == "cancelled: too late"
    assert str(Job._meta.verbose_name_plural) == "all jobs"
