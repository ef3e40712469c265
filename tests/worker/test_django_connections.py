"""Django's connections round a job: a thread that has one gets it looked after, another pays nothing."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection, connections, transaction
from django.db.backends.postgresql.base import DatabaseWrapper

from awa_django.worker import django_connections
from awa_django.worker.database import connection_parameters
from awa_django.worker.django_connections import disconnect, forget_inherited, tidy, tidy_own_thread
from tests.conftest import Connect
from tests.waiting import wait_until

T = TypeVar("T")
POOL_NAME = f"awa-pool-{os.getpid()}"
pytestmark = pytest.mark.django_db(transaction=True)


def on_a_new_thread(function: Callable[[], T]) -> T:
    def run() -> T:
        try:
            return function()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def test_connection_left_in_a_transaction_is_closed() -> None:
    def leave_open() -> bool:
        connection.set_autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        tidy()
        return connection.connection is None

    assert on_a_new_thread(leave_open)


def test_connection_opened_again_is_looked_after_again() -> None:
    def connect_twice() -> int:
        closed = 0
        for _ in range(2):
            connection.ensure_connection()
            connection.close_at = 0  # older than CONN_MAX_AGE allows
            tidy()
            closed += connection.connection is None
        return closed

    assert on_a_new_thread(connect_twice) == 2


def test_queries_of_the_job_before_are_forgotten() -> None:
    def ask() -> int:
        connection.force_debug_cursor = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        asked = len(connection.queries_log)
        tidy()
        return asked - len(connection.queries_log)

    assert on_a_new_thread(ask) == 1


def test_thread_without_connections_asks_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a third of what a job cost the worker."""
    connection.ensure_connection()  # another thread's is not this one's
    asked: list[threading.Thread] = []
    monkeypatch.setattr(
        django_connections, "close_old_connections", lambda: asked.append(threading.current_thread())
    )
    on_a_new_thread(tidy)
    assert not asked
    tidy()
    assert asked == [threading.current_thread()]


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[None]:
    """Threads that are new have their connections out of a pool of at most two."""
    given, own = connections.settings["default"], connections["default"]
    own.close()
    pool = {"min_size": 1, "max_size": 2, "timeout": 60}
    connections.settings["default"] = {
        **deepcopy(given),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**given["OPTIONS"], "pool": pool, "application_name": POOL_NAME},
    }
    del connections["default"]
    yield
    disconnect()
    connections.settings["default"] = given
    connections["default"] = own


def ask(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()[0][0]


@pytest.mark.parametrize("how", ["block", "statement", "failed statement"])
def test_transaction_does_not_go_on_into_the_next_job(
    how: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The work of all jobs to come on the thread would be rolled back at its end."""
    table = f"left_open_{os.getpid()}"

    def leave_open() -> None:
        if how == "block":
            transaction.atomic().__enter__()
        else:
            connection.cursor().execute("BEGIN")
        connection.cursor().execute(f"CREATE TABLE {table} ()")
        if how == "failed statement":
            with pytest.raises(Exception, match="by zero"):
                ask("SELECT 1 / 0")
        tidy_own_thread()
        connection.cursor().execute(f"CREATE TABLE {table}_after ()")

    with caplog.at_level(logging.WARNING, logger="awa_django"):
        on_a_new_thread(leave_open)
    observer = connect()
    found = observer.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'left_open_%'").fetchall()
    observer.execute(f"DROP TABLE {table}_after")
    assert found == [(f"{table}_after",)]
    assert "a transaction open on the database alias default" in caplog.text


def test_transaction_that_ended_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    def end_all() -> bool:
        with transaction.atomic():
            ask("SELECT 1")
        held = connection.connection
        tidy_own_thread()
        return connection.connection is held

    assert on_a_new_thread(end_all)
    assert not caplog.records


def test_pool_bounds_the_sessions_of_all_threads_and_replaces_broken_ones(
    pooled: None, connect: Connect
) -> None:
    observer = connect()
    mine = "FROM pg_stat_activity WHERE application_name = %s"

    def run_jobs() -> None:
        def run(_: int) -> int:
            tidy_own_thread()
            try:
                return int(ask("SELECT 1"))
            finally:
                tidy_own_thread()

        with ThreadPoolExecutor(6) as threads:
            assert sum(threads.map(run, range(60))) == 60

    run_jobs()
    assert 1 <= observer.execute(f"SELECT count(*) {mine}", [POOL_NAME]).fetchall()[0][0] <= 2
    observer.execute(f"SELECT pg_terminate_backend(pid) {mine}", [POOL_NAME])
    wait_until(lambda: observer.execute(f"SELECT count(*) {mine}", [POOL_NAME]).fetchall() == [(0,)])
    run_jobs()
    disconnect()
    wait_until(lambda: observer.execute(f"SELECT count(*) {mine}", [POOL_NAME]).fetchall() == [(0,)])


def test_workers_own_sessions_leave_the_pool_alone(pooled: None) -> None:
    assert not {"pool", "assume_role", "server_side_binding"} & set(connection_parameters())
    assert "default" not in DatabaseWrapper._connection_pools  # type: ignore[attr-defined]


def test_forked_process_has_neither_connections_nor_pools_of_its_parent(pooled: None) -> None:
    def fork() -> tuple[int, int, bool]:
        """As after a fork, in the same process: what is asked next goes over a session of its own."""
        before = ask("SELECT pg_backend_pid()")
        pool = DatabaseWrapper._connection_pools["default"]  # type: ignore[attr-defined]
        inherited: list[Any] = forget_inherited()
        after = ask("SELECT pg_backend_pid()")
        kept = pool in inherited and not pool.closed
        for each in inherited:
            each.close()  # as its parent would
        return before, after, kept

    before, after, kept = on_a_new_thread(fork)
    assert before != after
    assert kept, "closing it would end its parent's sessions"


def test_transaction_left_open_on_a_pooled_connection_stays_out_of_the_pool(pooled: None) -> None:
    def leave_open() -> object:
        transaction.atomic().__enter__()
        ask("SELECT 1")
        tidy_own_thread()
        return ask("SELECT pg_current_xact_id_if_assigned()"), connection.in_atomic_block

    assert on_a_new_thread(leave_open) == (None, False)


@pytest.mark.parametrize("left_open", [False, True])
def test_aliases_of_other_databases_are_looked_after_too(tmp_path: Path, left_open: bool) -> None:
    given = {**deepcopy(connections.settings["default"]), "ENGINE": "django.db.backends.sqlite3"}
    given |= {"NAME": tmp_path / "other", "OPTIONS": {}, "CONN_MAX_AGE": 0}
    connections.settings["other"] = given

    def use() -> tuple[bool, bool]:
        other = connections["other"]
        other.connect()
        if left_open:
            transaction.atomic(using="other").__enter__()
        session = other.connection
        tidy_own_thread()
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            session.execute("SELECT 1")
        return connections["other"] is other, connections["other"].in_atomic_block

    try:
        assert on_a_new_thread(use) == (not left_open, False)
    finally:
        del connections.settings["other"]
