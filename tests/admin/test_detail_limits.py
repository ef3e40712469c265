"""How long the page of a job may take the database, and how far it looks into the log of the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django.admin import detail
from awa_django.models import Job
from tests.admin.test_size_plans import met, nodes
from tests.factories import insert_job

pytestmark = pytest.mark.django_db


def url(job_id: int, view: str = "change") -> str:
    return reverse(f"admin:awa_hotjob_{view}", args=[job_id])


def shown_limit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def enter(*job_ids: int, message: str = "Done.") -> None:
    content_type, user = ContentType.objects.get_for_model(Job), User.objects.get()
    LogEntry.objects.bulk_create(
        LogEntry(
            content_type=content_type,
            user=user,
            object_id=str(job_id),
            object_repr="job",
            action_flag=CHANGE,
            change_message=message,
        )
        for job_id in job_ids
    )


@pytest.mark.parametrize("view", ["change", "live"])
def test_page_that_takes_too_long_says_so(
    view: str, root: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = insert_job()
    assert root.get(url(job_id, view)).status_code == 200
    settings.AWA = {"ADMIN_STATEMENT_TIMEOUT": 0.2}

    def sleep(_: int) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
        return []

    monkeypatch.setattr(detail, "explain", sleep)
    response = root.get(url(job_id, view))
    assert response.status_code == 503
    assert "more than 0.2 s" in response.content.decode()
    assert shown_limit() == "0"


@pytest.mark.parametrize(
    ("role", "ours", "holds"),
    [("0", 5, "5s"), ("4s", 5, "4s"), ("1min", 5, "5s"), ("1min", None, "1min")],
)
def test_the_lower_limit_holds_for_the_page_alone(
    role: str, ours: int | None, holds: str, root: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AWA = {"ADMIN_STATEMENT_TIMEOUT": ours}
    found: list[str] = []

    def note(_: int) -> list[Any]:
        found.append(shown_limit())
        return []

    monkeypatch.setattr(detail, "explain", note)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [role])
    assert root.get(url(insert_job())).status_code == 200
    assert found == [holds]
    assert shown_limit() == role


def test_only_the_newest_entries_of_the_log_are_looked_through(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detail, "LOG_WINDOW", 3)
    job_id = insert_job()
    enter(job_id, message="Long ago.")
    enter(job_id, message="Of late.")
    assert "Long ago." in root.get(url(job_id)).content.decode()
    enter(7, 8)
    page = root.get(url(job_id)).content.decode()
    assert "Long ago." not in page
    assert "Of late." in page


def test_the_log_is_read_by_its_key(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detail, "LOG_WINDOW", 50)
    enter(*range(1, 3001))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_admin_log")
    job = Job(id=2_990)
    log = detail.log_of(job, ContentType.objects.get_for_model(Job))
    assert [entry.object_id for entry in log] == ["2990"]
    [plan] = [part["Plan"] for part in _explained(log)]
    reads = [node for node in nodes(plan) if node.get("Relation Name") == "django_admin_log"]
    assert {node["Index Name"] for node in reads} == {"django_admin_log_pkey"}
    assert max(met(node) for node in reads) <= 51


def _explained(queryset: Any) -> Any:
    sql, params = queryset.query.sql_with_params()
    with connection.connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
        [(plans,)] = cursor.fetchall()
    return json.loads(plans) if isinstance(plans, str) else plans
