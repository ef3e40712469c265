"""Inserts are prepared where the session is one and the same, and work where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from awa_django.storage.insert import insert_job
from awa_django.storage.prepared import THRESHOLD
from tests.storage.test_insert import new_job, rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def new_session(clean_queue: None) -> Iterator[None]:
    """A session that nothing is known of, and nothing is prepared in."""
    connection.close()
    yield
    connection.close()


def insert(times: int) -> None:
    for _ in range(times):
        insert_job(connection, new_job())


def forget() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")


def prepared_count() -> int:
    return len(rows("SELECT FROM pg_prepared_statements"))


def test_insert_is_prepared_once_it_has_run_often_enough() -> None:
    # The first one tells that nobody is in between.
    insert(1 + THRESHOLD)
    assert prepared_count() == 0
    insert(2)
    assert prepared_count() == 1
    assert rows("SELECT count(*) FROM awa.jobs_hot") == [(THRESHOLD + 3,)]


def test_nothing_is_prepared_where_another_process_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", -1)
    insert(THRESHOLD + 3)
    assert prepared_count() == 0


def test_other_statements_of_the_session_stay_unprepared() -> None:
    insert(THRESHOLD + 2)
    for _ in range(THRESHOLD + 2):
        rows("SELECT %s::integer", 1)
    assert prepared_count() == 1
    assert connection.connection.prepare_threshold is None


def test_prepared_insert_is_a_query_like_any_other() -> None:
    insert(THRESHOLD + 3)
    seen = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(params["kind"])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        insert(1)
    assert seen == ["k"]
    with CaptureQueriesContext(connection) as captured:
        insert(1)
    assert ["'{}'::jsonb" in query["sql"] for query in captured.captured_queries] == [True]


def test_rollback_of_a_prepared_insert_leaves_nothing() -> None:
    insert(THRESHOLD + 2)
    with transaction.atomic():
        insert(1)
        transaction.set_rollback(True)
    insert(1)
    assert rows("SELECT count(*) FROM awa.jobs_hot") == [(THRESHOLD + 3,)]


def test_session_that_forgot_its_statements_goes_on_without() -> None:
    insert(THRESHOLD + 2)
    forget()
    insert(THRESHOLD + 3)
    assert prepared_count() == 0


def test_transaction_whose_session_forgot_its_statements_fails_once() -> None:
    insert(THRESHOLD + 2)
    forget()
    with pytest.raises(DatabaseError), transaction.atomic():
        insert(1)
    with transaction.atomic():
        insert(1)
    assert rows("SELECT count(*) FROM awa.jobs_hot") == [(THRESHOLD + 3,)]
