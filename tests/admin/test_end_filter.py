"""The filter on how the last attempt ended finds superseded jobs without a look at completed ones."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django.storage.limits import limit_reading
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

LIST = reverse("admin:awa_hotjob_changelist")


def shown(root: Client, ended: str) -> list[int]:
    page = root.get(LIST, {"ended": ended}).content.decode()
    return [int(found) for found in re.findall(r"/admin/awa/hotjob/(\d+)/change/", page)]


def ended(state: str, *outcomes: str) -> int:
    return insert_job(state, errors=[{"error": "no", "outcome": outcome} for outcome in outcomes])


def test_the_newest_entry_says_how_a_job_ended(root: Client) -> None:
    superseded = ended("cancelled", "retried", "superseded")
    expired, discarded = ended("failed", "expired"), ended("cancelled", "discarded")
    overdue = ended("failed", "rescued", "timed_out")
    lost = ended("failed", "rescued")
    ended("cancelled", "cancelled")
    ended("completed", "superseded")
    insert_job("cancelled")
    assert shown(root, "superseded") == [superseded]
    assert shown(root, "timed_out") == [overdue]
    assert shown(root, "expired") == [expired]
    assert shown(root, "discarded") == [discarded]
    assert shown(root, "rescued") == [lost]
    assert shown(root, "bogus") == shown(root, "\x00") == []


def test_an_entry_of_an_earlier_end_is_none_of_this_one(root: Client) -> None:
    """A superseded job was retried, and cancelled while it waited: that leaves no entry."""
    insert_job("cancelled", errors=[{"outcome": "superseded", "at": "2020-01-01T00:00:00+00:00"}])
    unread = insert_job("cancelled", errors=[{"outcome": "superseded", "at": "nonsense"}])
    now = insert_job("cancelled", errors=[{"outcome": "superseded"}])
    update_job(now, errors="ARRAY[jsonb_build_object('outcome', 'superseded', 'at', now())]")
    assert shown(root, "superseded") == [now, unread]


def test_completed_jobs_are_not_looked_at(fresh_tables: None, root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.jobs_hot (kind, state, finalized_at, errors) "
            "SELECT 'k', (CASE n % 100 WHEN 0 THEN 'cancelled' ELSE 'completed' END)::awa.job_state, now(), "
            "ARRAY[jsonb_build_object('outcome', CASE n % 1000 WHEN 0 THEN 'superseded' ELSE 'no' END)] "
            "FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE awa.jobs_hot")
        with CaptureQueriesContext(connection) as queries:
            assert len(shown(root, "superseded")) == 20
        asked = [query["sql"] for query in queries if "'superseded'" in query["sql"]]
        assert asked
        for sql in asked:
            limit_reading(connection, longest=None)
            cursor.execute("EXPLAIN " + sql)
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "jobs_hot_attention" in plan
            assert "Seq Scan" not in plan
            assert "jobs_hot_pkey" not in plan
