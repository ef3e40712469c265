"""How the dashboard looks: few bounded statements, once for all viewers, and what it says on failure."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django.admin.dashboard import shared
from awa_django.admin.dashboard.shared import Look, Problem, look
from awa_django.storage import dashboard as storage
from tests.admin.dashboard_rows import DATA, PAGE, add_rollup, add_worker, empty_snapshot, execute, panels
from tests.conftest import Connect
from tests.factories import insert_job
from tests.waiting import wait_until


@pytest.mark.django_db
def test_a_look_takes_the_same_statements_whatever_there_is(root: Client) -> None:
    root.get(reverse(DATA))  # warm

    def statements() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert root.get(reverse(DATA)).status_code == 200
        return len(captured)

    cache.clear()
    empty = statements()
    for number in range(5):
        insert_job(queue=f"q{number}")
        insert_job("running", queue=f"q{number}", worker=f"w{number}")
        add_worker(f"w{number}")
        add_rollup(kind=f"k{number}")
        execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES (%s, '* * * * *', 'a')", f"c{number}"
        )
    cache.clear()
    assert statements() == empty
    # Eight, a savepoint round them, the session and the user.
    assert empty == 8 + 3 + 2
    assert statements() == 2  # the session and the user: nothing of the queue


@pytest.mark.django_db
def test_a_look_leaves_no_setting_behind() -> None:
    assert look().snapshot is not None
    with connection.cursor() as cursor:
        for name, value in (("statement_timeout", "0"), ("lock_timeout", "0"), ("enable_sort", "on")):
            cursor.execute(f"SHOW {name}")
            assert cursor.fetchone() == (value,)


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "within"), [("0", "1min"), ("30s", "30s"), ("2min", "1min")])
def test_a_lower_limit_of_the_role_stays(before: str, within: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def list_nothing(_: object) -> list[object]:
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            found.append(cursor.fetchone()[0])
        return []

    monkeypatch.setattr(storage, "list_cron_jobs", list_nothing)
    execute(f"SET LOCAL statement_timeout = '{before}'")
    look()
    assert found == [within]


def test_many_who_look_at_once_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = [], Event()

    def ask() -> Any:
        asked.append(1)
        assert answer.wait(60)
        return empty_snapshot()

    monkeypatch.setattr(shared, "_ask", ask)
    monkeypatch.setattr(shared, "STATEMENT_TIMEOUT", timedelta(minutes=1))  # how long the others wait
    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(look) for _ in range(8)]
        wait_until(lambda: asked)
        answer.set()
        found = [each.result() for each in looks]
    assert len(asked) == 1
    assert all(each.snapshot == empty_snapshot() for each in found)


def test_while_one_looks_others_see_what_was_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_ask", empty_snapshot)
    look()
    begun, answer = Event(), Event()

    def ask() -> Any:
        begun.set()
        assert answer.wait(60)
        return empty_snapshot()

    monkeypatch.setattr(shared, "_ask", ask)
    cache.delete(shared._key("mark"))  # its time is over
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(look)
        assert begun.wait(60)
        assert look().snapshot == empty_snapshot()
        answer.set()
        slow.result()


def test_what_another_release_has_kept_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.set(shared._key("seen"), json.dumps({"snapshot": {"now": 1}}))
    assert shared._last_seen() is None
    monkeypatch.setattr(shared, "_ask", empty_snapshot)
    assert look() == shared._last_seen() == Look(snapshot=empty_snapshot())


@pytest.mark.django_db
def test_a_statement_that_takes_too_long_is_ended_and_the_page_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_job(queue="mail")
    assert "mail" in panels(root)["queues"]
    cache.delete(shared._key("mark"))
    monkeypatch.setattr(storage, "STATEMENT_TIMEOUT", timedelta(milliseconds=200))
    monkeypatch.setattr(storage, "list_cron_jobs", lambda _: execute("SELECT pg_sleep(60)"))
    seen = panels(root)
    assert "did not answer within" in seen["status"]
    assert "What is shown was seen at" in seen["status"]
    assert "mail" in seen["queues"]
    cache.clear()
    page = root.get(reverse(PAGE))
    assert page.status_code == 200
    assert "did not answer within" in page.content.decode()
    assert "No queue is known" not in page.content.decode()


@pytest.mark.django_db
def test_each_reads_in_his_language_why_there_is_no_newer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> Any:
        raise storage.TooSlow

    monkeypatch.setattr(shared, "_ask", ask)
    monkeypatch.setattr(shared, "_", str.upper)
    first = look().problem
    monkeypatch.undo()
    second = look().problem  # of the first look, from the cache
    assert first is not None
    assert second is Problem.TOO_SLOW
    assert second.text == "The database did not answer within 2 seconds."


@pytest.mark.django_db
def test_no_further_statement_is_begun_once_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert look().problem is None
    assert "pg_stat_all_tables" in "".join(query["sql"] for query in captured)  # asked last
    cache.clear()
    monkeypatch.setattr(storage, "STATEMENT_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(storage, "list_cron_jobs", lambda _: time.sleep(1.1))
    with CaptureQueriesContext(connection) as captured:
        assert look().problem is Problem.TOO_SLOW
    assert "pg_stat_all_tables" not in "".join(query["sql"] for query in captured)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_a_locked_table_holds_nobody_up(
    connect: Connect, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "STATEMENT_TIMEOUT", timedelta(seconds=4))  # a quarter of it for a lock
    other = connect(autocommit=False)
    other.execute("LOCK TABLE awa.scheduled_jobs IN ACCESS EXCLUSIVE MODE")
    assert "A table is locked" in panels(root)["status"]
    other.rollback()
