"""Sessions: opened when used, whole after errors, opened anew when broken, and READ COMMITTED always."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg.pq import TransactionStatus

from awa_django.errors import SchemaMismatch
from awa_django.storage.inspect import SCHEMA_VERSION
from awa_django.worker import database as module
from awa_django.worker.database import Session, check_schema, connect, is_connection_error
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def sessions(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name])
        return int(cursor.fetchone()[0])


def test_connection_is_opened_when_first_used_and_kept(session: Session) -> None:
    assert sessions(session.application_name) == 0
    with session.use() as first:
        first.execute("SELECT 1")
    with session.use() as second:
        assert second is first
    assert sessions(session.application_name) == 1
    session.close()
    wait_until(lambda: sessions(session.application_name) == 0)
    with session.use() as third:
        assert third.execute("SELECT 1").fetchone() == (1,)


PREPARED = "SELECT name, generic_plans, custom_plans FROM pg_prepared_statements WHERE statement ~ 'jobs_hot'"
COUNT = "SELECT count(*) FROM awa.jobs_hot WHERE queue = %s"


def test_jsonb_comes_as_text(session: Session) -> None:
    with session.use() as database:
        row = database.execute("SELECT '{\"n\": 1e400}'::jsonb").fetchone()
    assert isinstance(row[0], str)  # type: ignore[index]


def test_statements_are_read_once_and_planned_with_their_values_each_time(session: Session) -> None:
    with session.use() as database:
        for number in range(10):
            database.execute(COUNT, [f"queue-{number}"])
        [(_, generic, custom)] = database.execute(PREPARED).fetchall()
    assert (generic, custom) == (0, 9)


def test_nothing_is_prepared_or_set_where_another_process_answers(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", -1)
    with session.use() as database:
        for _ in range(10):
            database.execute(COUNT, ["default"])
        assert database.execute(PREPARED).fetchall() == []
        for name, value in (("plan_cache_mode", "auto"), ("enable_seqscan", "on"), ("jit", "on")):
            assert database.execute(f"SHOW {name}").fetchone() == (value,)


@pytest.mark.parametrize("lost", ["DEALLOCATE ALL", "ALTER TABLE awa.left_over ALTER kind TYPE integer"])
def test_session_whose_statements_are_gone_is_opened_anew_as_somebody_elses(
    session: Session, lost: str
) -> None:
    """There may be a pooler after all, one that tells the truth of who answers."""
    session._by_index = True
    statement = "SELECT kind FROM awa.left_over"

    def ask(times: int) -> psycopg.Connection[Any]:
        with session.use() as used:
            for _ in range(times):
                used.execute(statement)
            return used

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE awa.left_over (kind smallint)")
    try:
        first = ask(3)
        first.pgconn.exec_(lost.encode())  # psycopg hears nothing of it
        with pytest.raises(psycopg.Error) as raised:
            ask(1)
        assert is_connection_error(raised.value)
        second = ask(3)
        assert second is not first
        settings = "SELECT current_setting('enable_seqscan'), current_setting('jit')"
        assert second.execute(settings).fetchone() == ("on", "on")
        assert second.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE awa.left_over")


def test_error_leaves_the_session_fit_for_use(session: Session) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), session.use() as database:
        database.execute("SELECT 1/0")
    with pytest.raises(ValueError), session.use() as database, database.transaction():  # noqa: PT012
        database.execute("CREATE TABLE awa.left_over ()")
        raise ValueError
    with session.use() as again:
        assert again is database
        assert again.info.transaction_status == TransactionStatus.IDLE
        assert again.execute("SELECT to_regclass('awa.left_over')").fetchone() == (None,)


def test_broken_connection_is_opened_anew(session: Session) -> None:
    with session.use() as first:
        pid = first.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    with pytest.raises(psycopg.OperationalError) as raised, session.use() as broken:
        broken.execute("SELECT 1")
    assert is_connection_error(raised.value)
    with session.use() as second:
        assert second.info.backend_pid != pid


def test_users_take_turns(session: Session) -> None:
    inside = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with session.use():
            inside.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(60)
    entered: list[bool] = []

    def enter() -> None:
        with session.use():
            entered.append(True)

    second = threading.Thread(target=enter)
    second.start()
    second.join(0.1)
    assert not entered
    leave.set()
    second.join(60)
    holder.join(60)
    assert entered


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """The role's sessions default to REPEATABLE READ."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        [name] = cursor.fetchone()
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        yield
        cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")


@pytest.mark.usefixtures("repeatable_read")
def test_transactions_name_read_committed_whatever_the_role_defaults_to(session: Session) -> None:
    with session.use() as database:
        assert database.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        database.execute("INSERT INTO awa.job_kinds (kind) VALUES ('tests.committed')")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.job_kinds RETURNING kind")
        assert cursor.fetchall() == [("tests.committed",)]


def test_statement_past_its_limit_is_cancelled(
    make_limited: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled), make_limited.use() as database:
        database.execute("SELECT pg_sleep(30)")
    make_limited._limit = 60.0  # a slow machine may need longer than that for anything
    with make_limited.use() as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def make_limited() -> Iterator[Session]:
    session = Session(f"awa-test-limited-{os.getpid()}", limit=0.1)
    yield session
    session.close()


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.OperationalError("no SQLSTATE: the client lost it"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg.errors.IdleInTransactionSessionTimeout(), True),
        (psycopg.errors.UniqueViolation(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.ProgramLimitExceeded(), False),
        (psycopg.DataError("a NUL, refused by the client"), False),
        (ValueError(), False),
    ],
)
def test_errors_of_the_connection_are_told_from_those_of_a_row(exc: Exception, expected: bool) -> None:
    assert is_connection_error(exc) == expected


def test_schema_of_another_version_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.use() as database:
        check_schema(database)
        monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
        with pytest.raises(SchemaMismatch, match="migrate awa") as raised:
            check_schema(database)
    assert (raised.value.expected, raised.value.found) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)


def test_missing_schema_is_told(session: Session) -> None:
    with session.use() as database, pytest.raises(SchemaMismatch), database.transaction(force_rollback=True):  # noqa: PT012
        database.execute("ALTER SCHEMA awa RENAME TO elsewhere")
        check_schema(database)


def test_connection_that_cannot_be_set_up_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no adapters")

    monkeypatch.setattr("psycopg.adapt.AdaptersMap.register_loader", refuse)
    name = f"awa-test-refused-{os.getpid()}"
    with pytest.raises(RuntimeError):
        connect(name)
    wait_until(lambda: sessions(name) == 0)
