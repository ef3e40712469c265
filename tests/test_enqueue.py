"""Enqueue as application code does it: in its transactions, with its options and types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.core.handlers.base import BaseHandler
from django.db import DatabaseError, ProgrammingError, connection, connections, transaction
from django.test import RequestFactory
from pytest_django.plugin import DjangoDbBlocker

from awa_django import Enqueued, InvalidJob, JobNotFound, JobState, Unique, job
from awa_django.enqueue import waking
from awa_django.errors import ConfigurationError, SchemaMismatch
from tests.conftest import Connect
from tests.factories import insert_job


@job(kind="tests.enqueue.receipt")
def receipt(order_id: int, to: str = "", total: Decimal | None = None) -> date: ...  # type: ignore[empty-body]


@job(
    kind="tests.enqueue.other",
    aliases=["tests.enqueue.older"],
    queue="mail",
    priority=1,
    max_attempts=3,
    tags=["t"],
)
def other() -> None: ...


pytestmark = pytest.mark.django_db


def count(table: str = "awa.jobs") -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def test_enqueued_job_is_available_at_once() -> None:
    answer = receipt.enqueue(order_id=1, to="a@example.org", total=Decimal("1.10"))
    assert answer == Enqueued(answer.id, True, None)
    stored = receipt.get(answer.id)
    assert (stored.kind, stored.queue, stored.state) == (
        "tests.enqueue.receipt",
        "default",
        JobState.AVAILABLE,
    )
    assert stored.args == {"order_id": 1, "to": "a@example.org", "total": "1.10"}
    assert (stored.priority, stored.attempt, stored.max_attempts) == (2, 0, 25)
    assert receipt.handler.decode('{"order_id": 1, "total": "1.10"}') == {
        "order_id": 1,
        "total": Decimal("1.10"),
    }


def test_declared_options_hold_unless_one_enqueue_says_otherwise() -> None:
    declared = other.get(other.enqueue().id)
    assert (declared.queue, declared.priority, declared.max_attempts, declared.tags) == ("mail", 1, 3, ("t",))
    own = other.get(
        other.using(queue="q", priority=4, max_attempts=1, tags=[], metadata={"a": 1}, timeout=2).enqueue().id
    )
    assert (own.queue, own.priority, own.max_attempts, own.tags) == ("q", 4, 1, ())
    assert own.metadata == {"a": 1, "awa:timeout": 2.0}


def test_undeclared_max_attempts_is_the_setting(settings: Any) -> None:
    settings.AWA = {"MAX_ATTEMPTS": 7}
    assert receipt.get(receipt.enqueue(1).id).max_attempts == 7


def test_job_for_later_is_deferred() -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    scheduled = receipt.get(receipt.using(run_at=at).enqueue(1).id)
    assert (scheduled.state, scheduled.run_at) == (JobState.SCHEDULED, at)
    assert receipt.get(receipt.using(delay=timedelta(hours=1)).enqueue(1).id).state == JobState.SCHEDULED
    assert receipt.get(receipt.using(run_at=at.replace(year=2000)).enqueue(1).id).state == JobState.AVAILABLE


def test_refused_job_writes_nothing_and_leaves_the_transaction_usable(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        for arguments in ({"order_id": "1"}, {"order_id": 1, "to": "\x00"}, {}, {"order_id": 1, "x": 1}):
            with pytest.raises(InvalidJob):
                receipt.enqueue(**arguments)
    receipt.enqueue(1)
    assert count() == 1


def test_payload_is_bounded_by_the_setting(settings: Any) -> None:
    settings.AWA = {"MAX_ARGS_BYTES": 50}
    with pytest.raises(InvalidJob, match="MAX_ARGS_BYTES"):
        receipt.enqueue(1, to="a" * 50)


def await_jobs(queue: str = "default") -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.waiters VALUES ('w', %s, now() + interval '1 minute')", [[queue]])


WAYS: dict[str, Any] = {
    "plain": {},
    "due": {"tags": ["a"]},
    "unique": {"unique": Unique(args=True)},
}


@pytest.mark.parametrize("way", WAYS)
def test_enqueue_is_one_statement_and_another_one_wakes_who_waits(
    way: str, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        receipt.using(**WAYS[way]).enqueue(1)
    await_jobs("mail")
    with django_assert_num_queries(1):
        receipt.using(**WAYS[way]).enqueue(2)
    with django_assert_num_queries(2) as captured:
        receipt.using(queue="mail", **WAYS[way]).enqueue(3)
    assert "awa.wake" in captured.captured_queries[1]["sql"]
    with django_assert_num_queries(1):
        receipt.using(queue="mail", delay=60, **WAYS[way]).enqueue(4)


def test_who_waited_long_ago_is_not_woken(django_assert_num_queries: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.waiters VALUES ('w', '{default}', now() - interval '1 s')")
    with django_assert_num_queries(1):
        receipt.enqueue(1)


@pytest.mark.parametrize("queue", ["q" * 60, "a\"b'c\\d%s{}", "日" * 200, " ", "awa_jobs", "q;--"])
def test_any_queue_name_can_be_enqueued_to_and_woken(queue: str) -> None:
    await_jobs(queue)
    assert receipt.get(receipt.using(queue=queue).enqueue(1).id).queue == queue
    [answer] = receipt.enqueue_many([receipt.using(queue=queue).item(1)])
    assert receipt.get(answer.id).queue == queue


def test_eight_queues_at_once() -> None:
    queues = [f'queue "{number}" ü' for number in range(8)]
    answers = receipt.enqueue_many(receipt.using(queue=queue).item(1) for queue in queues)
    assert [receipt.get(answer.id).queue for answer in answers] == queues


def test_async_code_enqueues() -> None:
    async def main() -> tuple[Enqueued, JobState]:
        answer = await receipt.aenqueue(1, to="a")
        return answer, (await receipt.aget(answer.id)).state

    answer, state = async_to_sync(main)()
    assert answer.created
    assert state == JobState.AVAILABLE
    assert receipt.get(answer.id).args == {"order_id": 1, "to": "a"}


def test_sync_enqueue_in_async_code_is_refused_by_django() -> None:
    async def main() -> None:
        receipt.enqueue(1)

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(main)()


def test_get_refuses_a_job_of_another_kind() -> None:
    answer = other.enqueue()
    with pytest.raises(JobNotFound) as caught:
        receipt.get(answer.id)
    assert caught.value.job_id == answer.id
    with pytest.raises(JobNotFound):
        receipt.get(2**62)
    with pytest.raises(JobNotFound):  # which no bigint is: the transaction goes on
        receipt.get(2**63)
    assert receipt.enqueue(1).created


def test_get_reads_result_errors_and_progress() -> None:
    job_id = insert_job(
        "completed",
        kind="tests.enqueue.receipt",
        args={"order_id": 1},
        result={"awa:dropped": "x"},
        errors=[{"error": "boom", "attempt": 1}],
        progress={"percent": 50},
    )
    stored = receipt.get(job_id)
    assert stored.is_finished
    assert stored.state is JobState.COMPLETED
    assert stored.errors == [{"error": "boom", "attempt": 1}]
    assert stored.progress == {"percent": 50}
    assert stored.result == {"awa:dropped": "x"}


def test_get_restores_the_result_and_knows_aliases() -> None:
    job_id = insert_job("completed", kind="tests.enqueue.receipt")
    with connection.cursor() as cursor:
        cursor.execute("""UPDATE awa.jobs_hot SET result = '"2026-01-02"' WHERE id = %s""", [job_id])
    assert receipt.get(job_id).result == date(2026, 1, 2)
    assert other.get(insert_job(kind="tests.enqueue.older")).kind == "tests.enqueue.older"


class Boom(Exception):
    pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
class TestTransactions:
    def test_job_commits_with_the_order(self, connect: Connect) -> None:
        with transaction.atomic():
            User.objects.create(username="a")
            receipt.enqueue(1)
            assert connect().execute("SELECT count(*) FROM awa.jobs_hot").fetchone() == (0,)
        assert connect().execute("SELECT count(*) FROM awa.jobs_hot").fetchone() == (1,)

    def test_rolled_back_transaction_leaves_no_job(self) -> None:
        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            receipt.enqueue(1)
            receipt.using(delay=60).enqueue(1)
            receipt.enqueue_many([{"order_id": 1}] * 3)
            raise Boom
        assert count() == 0

    def test_rolled_back_savepoint_leaves_no_job_of_its_own(self) -> None:
        with transaction.atomic():
            kept = receipt.enqueue(1)
            with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
                receipt.enqueue(2)
                raise Boom
            receipt.enqueue(3)
        assert count() == 2
        assert receipt.get(kept.id).args == {"order_id": 1}

    def test_view_under_atomic_requests(
        self, client: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)

        def view(request: Any) -> Any:
            receipt.enqueue(1)
            if request.GET:
                raise Boom

        atomic_view = BaseHandler().make_view_atomic(view)
        with pytest.raises(Boom):
            atomic_view(RequestFactory().get("/?fail=1"))
        assert count() == 0
        atomic_view(RequestFactory().get("/"))
        assert count() == 1

    def test_autocommit_off(self) -> None:
        transaction.set_autocommit(False)
        try:
            receipt.enqueue(1)
            receipt.enqueue_many([{"order_id": 2}, {"order_id": 3}])
            transaction.rollback()
            assert count() == 0
            receipt.enqueue(1)
            receipt.enqueue_many([{"order_id": 2}, {"order_id": 3}])
            transaction.commit()
            assert count() == 3
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
        assert count() == 3

    def test_enqueue_without_a_transaction_commits_at_once(self, connect: Connect) -> None:
        receipt.enqueue(1)
        assert connect().execute("SELECT count(*) FROM awa.jobs_hot").fetchone() == (1,)

    def test_waiting_worker_is_notified_at_the_commit(self, connect: Connect) -> None:
        listener = connect()
        listener.execute("LISTEN awa_jobs")
        listener.execute("INSERT INTO awa.waiters VALUES ('w', '{default}', now() + interval '1 minute')")
        with transaction.atomic():
            receipt.enqueue(1)
            receipt.enqueue(2)
            assert not list(listener.notifies(timeout=0.05))
        assert [(n.channel, n.payload) for n in listener.notifies(timeout=60, stop_after=1)] == [
            ("awa_jobs", "default")
        ]
        receipt.using(delay=60).enqueue(1)
        other.enqueue()
        assert not list(listener.notifies(timeout=0.05))
        receipt.enqueue_many([{"order_id": 1}])
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1

    def test_failed_wake_up_outside_of_a_transaction_is_only_logged(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*args: object) -> bool:
            raise DatabaseError("gone")

        monkeypatch.setattr(waking, "wake", fail)
        await_jobs()
        receipt.enqueue(1)
        assert "could not wake" in caplog.text
        with pytest.raises(DatabaseError), transaction.atomic():
            receipt.enqueue(1)
        assert count() == 1


in_each_way = pytest.mark.parametrize(
    "put",
    [
        lambda: receipt.enqueue(1),
        lambda: receipt.using(delay=60).enqueue(1),
        lambda: receipt.using(unique=Unique()).enqueue(1),
        lambda: receipt.enqueue_many([{"order_id": 1}]),
    ],
    ids=["now", "later", "unique", "many"],
)


@in_each_way
def test_missing_schema_names_the_command(put: Callable[[], object]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER SCHEMA awa RENAME TO elsewhere")
    with (
        pytest.raises(SchemaMismatch, match=r"not installed: run `manage\.py migrate awa`"),
        transaction.atomic(),
    ):
        put()


@in_each_way
def test_another_database_than_postgresql_is_said(
    put: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """The settings of tests often have SQLite, and no system check runs there."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "lite.sqlite3", "OPTIONS": {}}
    monkeypatch.setitem(connections.settings, "lite", {**connection.settings_dict, **sqlite})
    settings.AWA = {"DATABASE": "lite"}
    told = "PostgreSQL, but the database alias 'lite' is sqlite: point"
    with django_db_blocker.unblock(), pytest.raises(ConfigurationError, match=told):
        put()
    connections["lite"].close()
    del connections["lite"]


def test_other_missing_tables_are_their_own_error() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM 1 FROM somebody_elses; RETURN NULL; END';"
            "CREATE TRIGGER fails AFTER INSERT ON awa.jobs_hot EXECUTE FUNCTION pg_temp.fail()"
        )
    with pytest.raises(ProgrammingError, match="somebody_elses"), transaction.atomic():
        receipt.enqueue(1)
