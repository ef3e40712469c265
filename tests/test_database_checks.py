"""What ``manage.py check --database default`` says of the queue's database."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import ERROR, Tags, registry, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections

from awa_django import job
from awa_django.database_checks import check_queue_database
from awa_django.storage.inspect import SCHEMA_VERSION
from tests.factories import insert_job

pytestmark = pytest.mark.django_db


def found() -> dict[str, str]:
    return {
        str(message.id): f"{message.msg} {message.hint}"
        for message in check_queue_database(databases=["default"])
    }


def run(statement: str, *values: int | str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


@pytest.fixture
def known(empty_registry: None) -> None:
    @job(kind="checks.known", aliases=["checks.older"])
    def known() -> None: ...


def test_sound_database_has_nothing_to_say() -> None:
    assert found() == {}


def test_it_is_asked_only_with_the_database_and_is_tagged_as_djangos_own(
    django_assert_num_queries: Any,
) -> None:
    with django_assert_num_queries(0):
        assert check_queue_database(databases=None) == check_queue_database(databases=["other"]) == []
        run_checks()
    tagged = [check for check in registry.registry.get_checks() if Tags.database in check.tags]
    assert check_queue_database in tagged
    assert set(check_queue_database.tags) == {"awa", Tags.database}


@pytest.mark.parametrize(("version", "expected"), [(140_011, ["awa.E010"]), (150_000, [])])
def test_old_server_is_an_error(monkeypatch: pytest.MonkeyPatch, version: int, expected: list[str]) -> None:
    monkeypatch.setitem(connections["default"].__dict__, "pg_version", version)
    assert list(found()) == expected


def test_standby_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awa_django.database_checks.survey.is_standby", lambda _: True)
    assert list(found()) == ["awa.E011"]


def test_schema_behind_names_the_command() -> None:
    run("DELETE FROM awa.schema_version WHERE version = %s", SCHEMA_VERSION)
    assert list(found()) == ["awa.W010"]
    assert f"at version {SCHEMA_VERSION - 1}, this code needs {SCHEMA_VERSION}" in found()["awa.W010"]
    assert "`manage.py migrate awa --database default`" in found()["awa.W010"]


def test_schema_that_is_not_there_names_the_command() -> None:
    run("ALTER SCHEMA awa RENAME TO elsewhere")
    assert list(found()) == ["awa.W010"]
    assert "not installed" in found()["awa.W010"]


def test_migrate_is_not_told_to_migrate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate", "--verbosity=0"])
    run("DELETE FROM awa.schema_version WHERE version = %s", SCHEMA_VERSION)
    assert found() == {}
    run("ALTER SCHEMA awa RENAME TO elsewhere")
    assert found() == {}
    run("ALTER SCHEMA elsewhere RENAME TO awa")
    run("INSERT INTO awa.schema_version (version, name) VALUES (%s, 'later')", SCHEMA_VERSION + 1)
    assert list(found()) == ["awa.W011"]


def test_schema_ahead_names_both_ways() -> None:
    run("INSERT INTO awa.schema_version (version, name) VALUES (%s, 'later')", SCHEMA_VERSION + 1)
    assert list(found()) == ["awa.W011"]
    assert "upgrade awa-django here" in found()["awa.W011"]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("DROP INDEX awa.jobs_hot_claim", "index awa.jobs_hot_claim"),
        (
            "ALTER TABLE awa.jobs_hot DISABLE TRIGGER unique_claim_update",
            "trigger unique_claim_update of awa.jobs_hot",
        ),
        ("DROP TABLE awa.runtime_instances", "relation awa.runtime_instances"),
    ],
)
def test_missing_objects_are_named(damage: str, named: str) -> None:
    run(damage)
    assert list(found()) == ["awa.W012"]
    assert named in found()["awa.W012"]


@pytest.mark.parametrize("state", ["available", "scheduled", "retryable"])
def test_waiting_jobs_of_unknown_kinds_are_named(known: None, state: str) -> None:
    for kind in ("checks.known", "checks.older", "checks.gone"):
        insert_job(state, kind=kind)
    insert_job("completed", kind="checks.gone.long.ago")
    assert list(found()) == ["awa.W013"]
    assert "no handler in this project: checks.gone." in found()["awa.W013"]


def test_only_some_of_many_names_are_shown(known: None) -> None:
    for number in range(12):
        insert_job("scheduled", kind=f"checks.gone{number:02}")
    assert "checks.gone09, ..." in found()["awa.W013"]
    assert "checks.gone10" not in found()["awa.W013"]


@pytest.mark.parametrize("state", ["available", "scheduled"])
def test_waiting_jobs_of_unserved_queues_are_named(known: None, settings: Any, state: str) -> None:
    settings.AWA = {"QUEUES": ["named"]}
    for queue in ("default", "named", "orphan"):
        insert_job(state, kind="checks.known", queue=queue)
    assert list(found()) == ["awa.W014"]
    assert "a worker without --queues does not serve: orphan." in found()["awa.W014"]


@pytest.mark.parametrize(("seconds", "expected"), [(20, ["awa.W014"]), (120, [])])
def test_living_workers_say_what_is_served(known: None, seconds: int, expected: list[str]) -> None:
    insert_job("available", kind="checks.known")
    run(
        "INSERT INTO awa.runtime_instances (name, hostname, pid, version, queues, last_seen_at) "
        "VALUES ('w', 'h', 1, '1', '{mail}', now() - make_interval(secs => %s))",
        seconds,
    )
    assert list(found()) == expected
    assert not expected or "no living worker serves: default." in found()["awa.W014"]


def test_role_that_may_not_look_is_told_nothing() -> None:
    run("CREATE ROLE awa_checks_blind")
    run("SET ROLE awa_checks_blind")
    assert found() == {}


def test_nothing_that_migrate_puts_right_keeps_it_from_running() -> None:
    run("ALTER SCHEMA awa RENAME TO elsewhere")
    messages = check_queue_database(databases=["default"])
    assert messages
    assert not any(message.is_serious(ERROR) for message in messages)
    call_command("check", databases=["default"])
    with pytest.raises(SystemCheckError, match=r"awa\.W010"):
        call_command("check", databases=["default"], fail_level="WARNING")
