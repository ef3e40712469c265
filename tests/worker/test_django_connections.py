"""Django's connections round a job: a thread that has one gets it looked after, another pays nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.db import connection, connections

from awa_django.worker import django_connections
from awa_django.worker.django_connections import tidy

T = TypeVar("T")
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
