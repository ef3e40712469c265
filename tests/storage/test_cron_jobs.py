"""Schedules: declared, changed and paused; each fire time makes one job, whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage._sql import Connection
from awa_django.storage.cron_jobs import (
    Fired,
    Made,
    cron_jobs,
    fire_cron_job,
    fire_unique_cron_job,
    sync_cron_job,
)
from tests.conftest import Connect
from tests.factories import reload_job

pytestmark = pytest.mark.django_db


def declare(name: str = "nightly", **changes: Any) -> bool:
    values: dict[str, Any] = {
        "cron_expr": "0 3 * * *",
        "timezone": "Europe/Madrid",
        "kind": "a.report",
        "queue": "reports",
        "args": '{"n": 1}',
        "priority": 3,
        "max_attempts": 4,
        "tags": ["t"],
        "metadata": '{"k": "v"}',
    }
    return sync_cron_job(connection, name=name, **{**values, **changes})


def fire(
    on: Connection, name: str, *fire_ats: datetime, since: datetime | None = None, skipped: int = 0
) -> Made:
    until = fire_ats[-1]
    since = since or until - timedelta(days=1)
    return fire_cron_job(on, name, fire_ats, until=until, since=since, skipped_count=skipped)


def execute(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description else []


def count_back(name: str = "nightly") -> None:
    """As if the schedule had fired last an hour ago."""
    execute("UPDATE awa.cron_jobs SET last_enqueued_at = now() - interval '1 hour' WHERE name = %s", name)


def test_declared_schedule_counts_from_now() -> None:
    assert declare()
    [schedule] = cron_jobs(connection)
    assert schedule[:3] == ("nightly", "0 3 * * *", "Europe/Madrid")
    assert schedule.since == schedule.now


def test_unchanged_declaration_writes_nothing() -> None:
    declare()
    before = execute("SELECT xmin::text, * FROM awa.cron_jobs")
    assert not declare()
    assert execute("SELECT xmin::text, * FROM awa.cron_jobs") == before


@pytest.mark.parametrize(
    ("change", "counts_anew"),
    [
        ({"cron_expr": "0 4 * * *"}, True),
        ({"timezone": "UTC"}, True),
        ({"args": '{"n": 2}'}, False),
        ({"queue": "other"}, False),
        ({"tags": []}, False),
        ({"missed": "skip"}, False),
        ({"catch_up_limit": 3}, False),
    ],
)
@pytest.mark.fault("U47", injected="a schedule's expression or zone is changed")
def test_changed_declaration_counts_anew_only_for_another_time(
    change: dict[str, Any], counts_anew: bool
) -> None:
    declare()
    count_back()
    assert declare(**change)
    [schedule] = cron_jobs(connection)
    assert (schedule.since == schedule.now) == counts_anew


def test_pause_is_the_operators_and_survives_a_declaration() -> None:
    declare()
    execute("UPDATE awa.cron_jobs SET paused = true")
    assert cron_jobs(connection) == []
    declare(cron_expr="0 4 * * *")
    assert cron_jobs(connection) == []


@pytest.mark.parametrize(
    "since", ["'infinity'", "'-infinity'", "'0044-03-15 BC'", "now() + interval '1 year'"]
)
def test_odd_mark_of_one_schedule_does_not_hide_the_others(since: str) -> None:
    declare()
    declare("other")
    execute(f"UPDATE awa.cron_jobs SET last_enqueued_at = {since} WHERE name = 'nightly'")
    schedules = cron_jobs(connection)
    assert [schedule.name for schedule in schedules] == ["nightly", "other"]
    assert schedules[0].since <= schedules[0].now


def test_fire_makes_the_job_and_the_mark_in_one_statement() -> None:
    declare()
    count_back()
    fire_at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    [(job_id, queue)] = fire(connection, "nightly", fire_at)
    job = reload_job(job_id)
    assert queue == "reports"
    assert (job.kind, job.queue, job.args, job.state) == ("a.report", "reports", {"n": 1}, "available")
    assert (job.priority, job.max_attempts, job.tags) == (3, 4, ["t"])
    assert job.metadata["k"] == "v"
    assert job.metadata["awa:cron"]["name"] == "nightly"
    assert datetime.fromisoformat(job.metadata["awa:cron"]["fire_at"]) == fire_at
    assert cron_jobs(connection)[0].since == fire_at


def test_fire_is_done_once_and_never_goes_back() -> None:
    declare()
    count_back()
    now = datetime.now(UTC)
    assert fire(connection, "nightly", now - timedelta(minutes=5))
    for fire_at in (now - timedelta(minutes=5), now - timedelta(minutes=6)):
        assert fire(connection, "nightly", fire_at) == []
    assert fire(connection, "nightly", now - timedelta(minutes=4))


def test_paused_or_unknown_schedule_does_not_fire() -> None:
    declare()
    count_back()
    execute("UPDATE awa.cron_jobs SET paused = true")
    assert fire(connection, "nightly", datetime.now(UTC)) == []
    assert fire(connection, "nobody", datetime.now(UTC)) == []
    assert execute("SELECT 1 FROM awa.jobs_hot") == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.fault("F39", injected="two leaders fire the same time of a schedule at once")
@pytest.mark.fault("U45", injected="two leaders fire the same time of a schedule at once")
def test_two_leaders_make_one_job_of_a_fire_time(connect: Connect) -> None:
    declare()
    count_back()
    fire_at = datetime.now(UTC) - timedelta(minutes=1)
    one, two = connect(autocommit=False), connect()
    assert fire(one, "nightly", fire_at)
    assert fire(two, "nightly", fire_at) == []  # it does not wait: other schedules are due too
    one.commit()
    assert fire(two, "nightly", fire_at) == []
    assert len(execute("SELECT 1 FROM awa.jobs_hot")) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.fault("U45", injected="a leader that dies between mark and commit")
def test_fire_that_is_rolled_back_leaves_neither_mark_nor_job(connect: Connect) -> None:
    declare()
    count_back()
    fire_at = datetime.now(UTC) - timedelta(minutes=1)
    one, two = connect(autocommit=False), connect()
    assert fire(one, "nightly", fire_at)
    one.rollback()
    assert fire(two, "nightly", fire_at)


def test_fires_done_by_a_rival_are_not_made_nor_counted_again() -> None:
    declare()
    count_back()
    now = datetime.now(UTC).replace(microsecond=0)
    since = cron_jobs(connection)[0].since
    fires = [now - timedelta(minutes=minutes) for minutes in (4, 3, 2, 1)]
    assert len(fire(connection, "nightly", *fires[:2], since=since, skipped=5)) == 2
    assert len(fire(connection, "nightly", *fires, since=since, skipped=5)) == 2
    assert execute("SELECT skipped_count, last_enqueued_at FROM awa.cron_jobs") == [(5, fires[-1])]


def test_fires_done_by_a_rival_take_no_key_and_are_not_counted_again() -> None:
    declare(metadata='{"awa:unique": 1}')
    count_back()
    now = datetime.now(UTC).replace(microsecond=0)
    since = cron_jobs(connection)[0].since
    fires = [now - timedelta(minutes=minutes) for minutes in (4, 3, 2, 1)]

    def fire_unique(fires: list[datetime]) -> list[Fired]:
        return fire_unique_cron_job(
            connection,
            "nightly",
            fires,
            until=fires[-1],
            since=since,
            skipped_count=5,
            unique="1",
            unique_keys=[f"{fire:%Y%m%d%H%M%S}..".encode() for fire in fires],
            unique_states="11111001",
        )

    assert [each.fire_at for each in fire_unique(fires[:2]) if each.job_id] == fires[:2]
    assert [each.fire_at for each in fire_unique(fires) if each.job_id] == fires[2:]
    assert fire_unique(fires) == []
    assert execute("SELECT skipped_count, last_enqueued_at FROM awa.cron_jobs") == [(5, fires[-1])]
    assert execute("SELECT count(*) FROM awa.job_unique_claims") == [(4,)]


def test_fires_without_a_job_move_the_mark_and_are_counted() -> None:
    declare()
    count_back()
    until = datetime.now(UTC)
    since = cron_jobs(connection)[0].since
    assert fire_cron_job(connection, "nightly", [], until=until, since=since, skipped_count=3) == []
    assert execute("SELECT skipped_count, last_enqueued_at FROM awa.cron_jobs") == [(3, until)]
    assert execute("SELECT 1 FROM awa.jobs_hot") == []


def test_schedule_written_by_hand_belongs_to_the_code_once_it_declares_it() -> None:
    declare()
    execute("UPDATE awa.cron_jobs SET declared_at = NULL")
    assert declare()
    assert execute("SELECT declared_at = now() FROM awa.cron_jobs") == [(True,)]
    assert not declare()
    execute("UPDATE awa.cron_jobs SET declared_at = now() - interval '1 minute'")
    assert declare()
    assert execute("SELECT declared_at = now() FROM awa.cron_jobs") == [(True,)]
