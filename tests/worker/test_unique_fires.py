"""Fires of schedules whose jobs are unique: each takes its key or is skipped, and the mark moves on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django import Unique, doctor, job, operations, registry
from awa_django.handler import PeriodicJob
from awa_django.jobs.job import Job
from awa_django.models import CronJob, HotJob
from awa_django.storage import cron_jobs as storage
from awa_django.worker.cron_scheduler import UNDECIDED_WAIT, CronScheduler, declare_schedule
from awa_django.worker.database import Session
from tests.conftest import Connect
from tests.waiting import wait_until
from tests.worker.conftest import AtWill, Sessions, lead_at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

Declare = Callable[..., "Job[Any, Any]"]


def rebuild(shop: str = "north", full: bool = False) -> None: ...


@pytest.fixture
def declare(session: Session) -> Iterator[Declare]:
    """``declare("s", Unique(), "* * * * *")``: a schedule that fired last ``since`` ago, and its job.

    The worker that leads does not know the kind any more.
    """
    made: list[Job[Any, Any]] = []

    def one(
        name: str,
        unique: Unique | None,
        expr: str = "* * * * *",
        since: timedelta = timedelta(hours=1),
        args: dict[str, object] | None = None,
        **more: Any,
    ) -> Job[Any, Any]:
        options: dict[str, Any] = {} if unique is None else {"unique": unique}
        declared: Job[Any, Any] = job(kind=f"tests.unique_fires.{name}", queue="mail", **options)(rebuild)
        made.append(declared)
        periodic = PeriodicJob(
            name=name,
            cron_expr=expr,
            timezone="UTC",
            handler=declared.handler,
            arguments=declared.handler.bind((), args or {}),
            **more,
        )
        with session.use() as on:
            declare_schedule(on, periodic)
            on.execute(
                "UPDATE awa.cron_jobs SET last_enqueued_at = now() - %s::interval WHERE name = %s",
                [since, name],
            )
        registry.unregister(declared.handler)
        return declared

    yield one
    for each in made:
        registry.unregister(each.handler)


@pytest.fixture
def scheduler(session: Session, leader: AtWill) -> CronScheduler:
    return CronScheduler(session, leader)


@pytest.fixture(autouse=True)
def nothing_is_wrong_afterwards(clean_queue: None) -> Iterator[None]:
    yield  # to be looked at before the tables are emptied
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []


def fired(name: str = "s") -> list[HotJob]:
    return list(HotJob.objects.filter(metadata__contains={"awa:cron": {"name": name}}).order_by("pk"))


def skipped(name: str = "s") -> int:
    return CronJob.objects.get(name=name).skipped_count


def mark(name: str = "s") -> datetime:
    """The last fire that is done."""
    at = CronJob.objects.get(name=name).last_enqueued_at
    assert at is not None
    return at


def test_fire_whose_key_is_held_makes_no_job_and_is_done(
    declare: Declare, scheduler: CronScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    rebuilding = declare("s", Unique(), "0 0 * * *", timedelta(days=1))
    holder = rebuilding.enqueue()
    with caplog.at_level(logging.INFO, logger="awa_django"):
        for _ in range(3):
            scheduler.tick()
    assert fired() == []
    assert skipped() == 1
    assert mark() == datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith(f"as job {holder.id} holds its unique key")


def test_job_of_a_fire_holds_its_key_until_it_has_ended(declare: Declare, scheduler: CronScheduler) -> None:
    rebuilding = declare("s", Unique(), "* * * * * *")
    scheduler.tick()
    [made] = fired()
    assert (made.state, made.queue, made.args) == ("available", "mail", {})
    assert made.metadata.keys() == {"awa:cron"}
    again = rebuilding.enqueue(shop="other")
    assert (again.created, again.holder_id) == (False, made.pk)

    operations.cancel(made.pk)
    assert rebuilding.holder_id() is None
    wait_until(lambda: scheduler.tick() and rebuilding.holder_id())
    assert rebuilding.holder_id() == fired()[-1].pk != made.pk


@pytest.mark.parametrize(
    "unique",
    [
        Unique(args=True, period=timedelta(days=1)),
        Unique(args=("shop",), queue=True, period=timedelta(days=1)),
        Unique(args=lambda args: args["shop"].upper(), period=timedelta(days=1)),
    ],
)
def test_each_period_has_a_key_of_its_own(unique: Unique, declare: Declare, scheduler: CronScheduler) -> None:
    options = {"args": {"shop": "south"}, "missed": "catch_up", "catch_up_limit": 3}
    rebuilding = declare("s", unique, "0 */12 * * *", timedelta(days=5), **options)
    scheduler.tick()
    made = fired()
    days = {job.metadata["awa:cron"]["fire_at"][:10] for job in made}
    assert len(days) == len(made) == 2  # three fires, in two days
    assert skipped() >= 1
    for each in made:
        fire_at = datetime.fromisoformat(each.metadata["awa:cron"]["fire_at"])
        again = rebuilding.using(run_at=fire_at).enqueue(shop="south")
        assert (again.created, again.holder_id) == (False, each.pk)
    assert rebuilding.using(run_at=fire_at).enqueue(shop="north").created


@pytest.mark.parametrize("missed", ["coalesce", "skip", "catch_up"])
def test_policy_for_missed_fires_counts_each_once_though_the_key_is_held(
    missed: str, declare: Declare, scheduler: CronScheduler
) -> None:
    declare("s", Unique(), missed=missed, catch_up_limit=10).enqueue()
    for _ in range(2):
        scheduler.tick()
    assert fired() == []
    assert skipped() in (60, 61)  # a minute may begin meanwhile
    assert datetime.now(UTC) - mark() < timedelta(seconds=125)


def test_fires_caught_up_at_once_share_a_key(declare: Declare, scheduler: CronScheduler) -> None:
    declare("s", Unique(), "0 0 * * *", timedelta(days=4), missed="catch_up")
    scheduler.tick()
    [made] = fired()
    assert datetime.now(UTC) - datetime.fromisoformat(made.metadata["awa:cron"]["fire_at"]) > timedelta(
        days=3
    )  # the oldest
    assert skipped() == 3


def test_many_leaders_at_once_make_one_job_or_count_one_fire(
    make_session: Sessions, leader: AtWill, declare: Declare
) -> None:
    for number in range(6):
        made = declare(f"s{number}", Unique(), "0 0 * * *", timedelta(days=20), missed="catch_up")
        if number % 2:
            made.enqueue()
    schedulers = [CronScheduler(make_session(), leader) for _ in range(4)]
    lead_at_once(schedulers, ticks=4)
    for number in range(6):
        jobs = fired(f"s{number}")
        assert len(jobs) == (0 if number % 2 else 1)
        assert len(jobs) + skipped(f"s{number}") in (20, 21)  # a day may begin meanwhile


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_key_in_an_open_transaction_holds_up_no_other_schedule(
    ends: str, declare: Declare, scheduler: CronScheduler, connect: Connect
) -> None:
    declare("a", Unique())
    declare("b", Unique())
    before = mark("a")
    key = Unique().key("tests.unique_fires.a", queue="mail", args={}, at=None)
    rival = connect(autocommit=False)
    rival.execute(
        "WITH due AS (SELECT nextval('awa.jobs_id_seq') AS id), claim AS ("
        "INSERT INTO awa.job_unique_claims SELECT %s, id FROM due RETURNING job_id) "
        "INSERT INTO awa.jobs_hot (id, kind, queue, unique_key, unique_states) "
        "SELECT job_id, 'tests.unique_fires.a', 'mail', %s, '11111001' FROM claim",
        [key, key],
    )
    wait_seconds = scheduler.tick()  # longer patience would end in an error, after 10 s
    assert wait_seconds is not None
    assert wait_seconds <= UNDECIDED_WAIT
    assert (len(fired("a")), len(fired("b"))) == (0, 1)
    assert (mark("a"), skipped("a")) == (before, 0)

    getattr(rival, ends)()
    scheduler.tick()
    assert len(fired("a")) == (0 if ends == "commit" else 1)
    assert mark("a") > before
    assert skipped("a") >= 59


def test_row_of_an_older_declaration_fires_as_before(declare: Declare, scheduler: CronScheduler) -> None:
    declare("s", Unique(), "0 0 * * *", timedelta(days=1)).enqueue()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.cron_jobs SET metadata = metadata - 'awa:unique'")
    scheduler.tick()
    [made] = fired()
    assert made.unique_key is None
    assert skipped() == 0


def test_row_that_has_just_been_declared_anew_is_left_for_the_next_look(
    declare: Declare, session: Session
) -> None:
    declare("s", Unique())
    declare("plain", None)
    with session.use() as on:
        plain, unique = storage.cron_jobs(on)
        until: dict[str, Any] = {"until": unique.now, "since": unique.since, "skipped_count": 0}
        keys: dict[str, Any] = {"unique_keys": [b"k" * 16], "unique_states": "11111001"}
        assert plain.unique is None
        assert unique.unique is not None
        assert storage.fire_cron_job(on, "s", [unique.now], **until) == []
        for name in ("s", "plain"):
            assert (
                storage.fire_unique_cron_job(on, name, [unique.now], unique='{"o": 1}', **keys, **until) == []
            )
    assert mark() == unique.since
    assert not HotJob.objects.exists()


def test_key_that_somebody_wrote_wrong_stops_only_its_schedule(
    declare: Declare, scheduler: CronScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        declare(name, Unique())
    with connection.cursor() as cursor:
        cursor.execute("""UPDATE awa.cron_jobs SET metadata = '{"awa:unique": 7}' WHERE name = 'a'""")
    scheduler.tick()
    assert (len(fired("a")), len(fired("b"))) == (0, 1)
    assert "'a' is left out" in caplog.text
