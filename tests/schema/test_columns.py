"""The two tables of jobs and the view over them cannot drift apart."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

# What may not change through the view, so its UPDATEs do not write it.
UNCHANGEABLE = {"id", "kind", "created_at", "unique_key", "unique_states", "run_lease"}


def columns(relation: str) -> list[tuple[Any, ...]]:
    """(name, type, not null, default) in order."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT attribute.attname,
                   format_type(attribute.atttypid, attribute.atttypmod),
                   attribute.attnotnull,
                   pg_get_expr(attrdef.adbin, attrdef.adrelid)
            FROM pg_attribute AS attribute
            LEFT JOIN pg_attrdef AS attrdef
                ON attrdef.adrelid = attribute.attrelid AND attrdef.adnum = attribute.attnum
            WHERE attribute.attrelid = %s::regclass AND attribute.attnum > 0 AND NOT attribute.attisdropped
            ORDER BY attribute.attnum
            """,
            [relation],
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_tables_have_the_same_columns_in_the_same_order() -> None:
    hot = [column for column in columns("awa.jobs_hot") if column[0] != "state"]
    deferred = [column for column in columns("awa.scheduled_jobs") if column[0] != "state"]
    assert hot == deferred
    assert [column[0] for column in columns("awa.jobs_hot")] == [
        column[0] for column in columns("awa.scheduled_jobs")
    ]
    assert {c[0]: c[3] for c in columns("awa.scheduled_jobs")}["state"] == "'scheduled'::awa.job_state"


def test_view_has_the_columns_of_the_tables_in_the_same_order() -> None:
    assert [column[:2] for column in columns("awa.jobs")] == [
        column[:2] for column in columns("awa.jobs_hot")
    ]


def test_view_fills_the_defaults_of_the_tables_except_id_and_state() -> None:
    table = {name: default for name, _, _, default in columns("awa.jobs_hot")}
    view = {name: default for name, _, _, default in columns("awa.jobs")}
    assert view == table | {"id": None, "state": None}


def test_tables_have_the_same_checks_but_for_their_states() -> None:
    def checks(table: str) -> set[tuple[str, str]]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
                "WHERE conrelid = %s::regclass AND contype = 'c' AND conname <> %s",
                [table, f"{table.removeprefix('awa.')}_states"],
            )
            return set(cursor.fetchall())

    assert checks("awa.jobs_hot") == checks("awa.scheduled_jobs")
    assert checks("awa.jobs_hot")


def test_view_updates_write_every_column_that_may_change() -> None:
    text = files("awa_django.migrations").joinpath("sql", "0004_view.sql").read_text()
    written = re.findall(
        r"UPDATE awa\.(?:jobs_hot|scheduled_jobs) AS job\s+SET(.*?)\n\s+WHERE", text, re.DOTALL
    )
    assert len(written) == 2
    changeable = [column[0] for column in columns("awa.jobs_hot") if column[0] not in UNCHANGEABLE]
    for assignments in written:
        assert re.findall(r"^\s*(\w+) = ", assignments, re.MULTILINE) == changeable
