"""Objects of the schema that are missing, switched off or of another release are reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

from awa_django.doctor import SCHEMA_OBJECTS, diagnose
from awa_django.storage import inspect
from tests.doctor.violations import execute, without

SQL = Path(inspect.__file__).parent / "sql" / "doctor"


def removals() -> list[str]:
    """What to execute so that one object of the schema is gone or out of order."""
    text = SQL.joinpath("missing_objects.sql").read_text()

    def names(section: str) -> list[str]:
        body = re.search(rf"^(?:WITH )?{section} \([\w, ]+\) AS \((.*?)^\)", text, re.DOTALL | re.MULTILINE)
        assert body is not None
        return re.findall(r"'(\w+)'", body[1])

    kinds = {"jobs": "VIEW", "jobs_id_seq": "SEQUENCE"}
    triggers = names("triggers")
    return [
        *(f"DROP {kinds.get(name, 'TABLE')} awa.{name} CASCADE" for name in names("relations")),
        *(f"DROP FUNCTION awa.{name} CASCADE" for name in names("functions")),
        *(
            f"DROP TRIGGER {name} ON awa.{relation}"
            for relation, name in zip(triggers[::2], triggers[1::2], strict=True)
        ),
        *(
            f"ALTER TABLE awa.{relation} DISABLE TRIGGER {name}"
            for relation, name in zip(triggers[::2], triggers[1::2], strict=True)
            if relation != "jobs"
        ),
        *(f"DROP INDEX awa.{name}" for name in names("indexes") if not name.endswith("_pkey")),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("statement", removals())
def test_missing_or_disabled_object_is_reported(statement: str) -> None:
    execute(statement)
    assert SCHEMA_OBJECTS.name in {finding.name for finding in diagnose()}


@pytest.mark.django_db
def test_missing_objects_knows_every_object() -> None:
    text = SQL.joinpath("missing_objects.sql").read_text()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace
            UNION SELECT proname FROM pg_proc WHERE pronamespace = 'awa'::regnamespace
            UNION SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
                WHERE relnamespace = 'awa'::regnamespace AND NOT tgisinternal
            UNION SELECT conname FROM pg_constraint
                WHERE conrelid IN ('awa.jobs_hot'::regclass, 'awa.scheduled_jobs'::regclass)
            """
        )
        names = {name for (name,) in cursor.fetchall() if not name.endswith("_not_null")}
    assert names <= set(re.findall(r"'(\w+)'", text))


@pytest.mark.django_db
def test_dropped_check_is_reported() -> None:
    without("jobs_args_object", table="scheduled_jobs")
    assert [finding.examples for finding in diagnose()] == [("check jobs_args_object of awa.scheduled_jobs",)]


@pytest.mark.django_db
def test_schema_of_another_release_is_reported() -> None:
    execute("INSERT INTO awa.schema_version (version, name) VALUES (9999, 'future')")
    assert [(finding.name, finding.examples) for finding in diagnose()] == [("schema_version", ("9999",))]
