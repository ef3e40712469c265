"""The catalogue of kinds: what workers serve, and what is found in the tables."""

from __future__ import annotations

import pytest
from django.db import connection

from awa_django.storage.catalogue import catalogue_kinds, catalogue_recent_kinds
from tests.factories import insert_job

pytestmark = pytest.mark.django_db


def known() -> dict[str, str | None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind, queue FROM awa.job_kinds")
        return dict(cursor.fetchall())


def test_served_kinds_are_remembered_with_their_queue() -> None:
    catalogue_kinds(connection, {"b": "default", "a": "mail"})
    catalogue_kinds(connection, {"a": "other"})
    catalogue_kinds(connection, {})
    assert known() == {"a": "other", "b": "default"}


def test_kinds_of_the_newest_hot_and_of_all_deferred_jobs_are_found() -> None:
    insert_job(kind="too old")
    for kind in ("hot", "hot", "done"):
        insert_job("completed" if kind == "done" else "available", kind=kind)
    for kind in ("z later", "m later", "a later", "m later"):
        insert_job("scheduled", kind=kind)
    catalogue_kinds(connection, {"hot": "mail"})
    catalogue_recent_kinds(connection, window=3)
    assert known() == {"hot": "mail", "done": None, "a later": None, "m later": None, "z later": None}


def test_empty_tables_have_no_kinds() -> None:
    catalogue_recent_kinds(connection, window=10)
    assert known() == {}
