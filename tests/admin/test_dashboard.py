"""The dashboard: what it shows and to whom, and that it asks the database little however many look."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django.admin.dashboard import shared
from awa_django.admin.dashboard.shared import Look, look
from awa_django.storage import dashboard as storage
from tests.admin.conftest import Login
from tests.admin.test_pages import EVIL
from tests.conftest import Connect
from tests.factories import insert_job
from tests.waiting import wait_until

PAGE = "admin:awa_dashboard_changelist"
DATA = "admin:awa_dashboard_data"


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def panels(client: Client) -> dict[str, str]:
    """The panels as the script gets them, without blanks between tags."""
    answer = client.get(reverse(DATA))
    assert answer.status_code == 200
    found: dict[str, str] = answer.json()["panels"]
    return {name: " ".join(html.split()) for name, html in found.items()}


def execute(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def add_worker(name: str = "box:1:a/1", queues: str = "{default}", seen: str = "0 s") -> None:
    execute(
        "INSERT INTO awa.runtime_instances "
        "(name, supervisor, hostname, pid, version, queues, concurrency, last_seen_at) "
        "VALUES (%s, 'box:1:a', 'box', 7, '1', %s::text[], 10, now() - %s::interval)",
        name, queues, seen,
    )  # fmt: skip


def add_rollup(minutes_ago: int = 1, kind: str = "shop.pay", **columns: Any) -> None:
    values = {"completed_count": 10, "wait_histogram": [0, 10], "run_histogram": [0] * 9 + [10], **columns}
    execute(
        f"INSERT INTO awa.queue_stats (minute, queue, kind, {', '.join(values)}) "
        f"VALUES (date_trunc('minute', now()) - %s * interval '1 min', 'mail', %s{', %s' * len(values)})",
        minutes_ago, kind, *values.values(),
    )  # fmt: skip


@pytest.mark.django_db
def test_each_queue_shows_what_waits_runs_and_failed(root: Client) -> None:
    for priority, minutes in ((1, 2), (2, 9), (4, 5)):
        insert_job(queue="mail", priority=priority, run_at=ago(minutes=minutes, seconds=1))
    insert_job("running", queue="mail", worker="box:1:a/1")
    insert_job("scheduled", queue="mail", run_at=ago(minutes=-30))
    insert_job("retryable", queue="mail", run_at=ago(minutes=-90))
    insert_job("scheduled", queue="mail", run_at=ago(minutes=1))
    insert_job("failed", queue="mail")
    insert_job("cancelled", queue="mail")
    (row,) = take().queues
    assert row.queue == "mail"
    assert (row.runnable, row.deferred, row.due_soon, row.overdue) == (3, 3, 1, 1)
    assert row.oldest_run_at is not None
    assert take().now - row.oldest_run_at >= timedelta(minutes=9)
    assert take().failed == {"mail": 1}
    html = panels(root)["queues"]
    assert '<th scope="row">mail</th>' in html
    assert "9 min" in html
    assert "?state=failed&amp;queue=mail" in html


@pytest.mark.django_db
def test_counts_stop_at_their_cap(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOWEST_CAP", "HIGHEST_CAP", "FAILED_CAP", "RUNNING_CAP"):
        monkeypatch.setattr(storage, name, 3)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.FAILED_CAP", 3)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.HIGHEST_CAP", 3)
    for _ in range(5):
        insert_job(queue="mail")
        insert_job("failed", queue="mail")
        insert_job("scheduled", queue="mail", run_at=ago(days=-2))
    snapshot = take()
    assert (snapshot.queues[0].runnable, snapshot.queues[0].deferred) == (3, 3)
    assert (snapshot.failed, max(span.counted for span in snapshot.frontier)) == ({"mail": 3}, 3)
    seen = panels(root)
    assert seen["queues"].count(">3+<") == 3
    assert "3+</td>" in seen["frontier"]


@pytest.mark.django_db
@pytest.mark.parametrize("spread", ["number * interval '1 min'", "interval '90 min'"])
def test_beyond_its_cap_a_span_is_estimated(
    spread: str, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what ANALYZE knows: also when all are due at one instant, which no histogram has then."""
    monkeypatch.setattr(storage, "HIGHEST_CAP", 10)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.HIGHEST_CAP", 10)
    execute(
        f"INSERT INTO awa.scheduled_jobs (kind, run_at) "
        f"SELECT 'a', now() + {spread} + interval '20 s' FROM generate_series(1, 1000) AS number"
    )
    execute("ANALYZE awa.scheduled_jobs")
    found = take().frontier[5]  # in an hour to three
    assert found.counted == 10
    assert found.estimate == pytest.approx(120 if "number" in spread else 1000, rel=0.2)
    assert "about 1" in panels(root)["frontier"]


@pytest.mark.django_db
def test_the_last_hour_is_drawn_and_told_in_numbers(root: Client) -> None:
    add_rollup(minutes_ago=2, failed_count=1)
    add_rollup(minutes_ago=2, kind="shop.mail", wait_histogram=None, run_histogram=None)
    add_rollup(minutes_ago=50)
    add_rollup(minutes_ago=70)  # no longer
    answer = root.get(reverse(DATA)).json()
    throughput, wait = answer["charts"]["throughput"], answer["charts"]["wait"]
    assert len(throughput["x"]) == len(throughput["labels"]) == 60
    completed, _, failed, _ = (series["values"] for series in throughput["series"])
    at = completed.index(20)
    assert (at in (56, 57), failed[at], completed[at - 48], sum(completed)) == (True, 1, 10, 30)
    assert [series["values"][at] for series in wait["series"]] == [0.0015, 0.0019, 0.002]
    assert wait["series"][0]["values"][at - 1] is None
    assert "31 in all" in throughput["summary"]
    assert not throughput["is_empty"]
    html = " ".join(answer["panels"]["kinds"].split())
    assert "shop.pay" in html
    assert "2 ms" in html  # half of its waits
    assert answer["panels"]["minutes"].count('<th scope="row">') == 2


@pytest.mark.django_db
def test_an_empty_queue_says_what_to_do(root: Client) -> None:
    seen = panels(root)
    assert "No worker is running" in seen["alerts"]
    assert "python manage.py awa_worker" in seen["workers"]
    assert "No queue is known yet" in seen["queues"]
    assert "No job ended in the last hour." in seen["kinds"]
    assert root.get(reverse(DATA)).json()["charts"]["run"]["is_empty"]


@pytest.mark.django_db
def test_alerts_name_what_needs_somebody(root: Client) -> None:
    add_worker()
    add_worker("box:2:b/1", seen="10 min")
    insert_job(queue="mail x")
    insert_job(queue="paused")
    execute("INSERT INTO awa.queue_meta (queue, paused) VALUES ('paused', true)")
    insert_job("scheduled", run_at=ago(minutes=3))
    seen = panels(root)["alerts"]
    assert "awa_worker --queues &#x27;mail x&#x27;" in seen
    assert "Queue paused is paused" in seen
    assert "Promotion is 3 min behind. Nobody does it." in seen
    assert "The process box:2:b/1 has not been heard of for long." in seen
    assert "No worker is running" not in seen


@pytest.mark.django_db
def test_workers_show_what_each_child_runs(root: Client) -> None:
    add_worker()
    ids = [
        insert_job("running", kind=f"shop.job{n}", worker="box:1:a/1", attempted_at=ago(seconds=n))
        for n in range(8)
    ]
    lost = insert_job("running", worker="gone")
    html = panels(root)["workers"]
    assert "8 of 10" in html
    assert html.index("shop.job7") < html.index("shop.job6")
    assert f"/hotjob/{ids[7]}/change/" in html
    assert f"/hotjob/{ids[0]}/change/" not in html
    assert "and 3 more" in html
    assert f"/hotjob/{lost}/change/" in html


@pytest.mark.django_db
def test_schedules_show_their_next_fires_and_a_wrong_one_harms_nobody(root: Client) -> None:
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('good', '* * * * *', 'a')")
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('wrong', 'never', 'a')")
    execute("UPDATE awa.cron_jobs SET paused = true WHERE name = 'wrong'")
    html = panels(root)["schedules"]
    good, wrong = html.split('<th scope="row">wrong')
    assert good.count("<time") == 3  # those to come, as it never fired
    assert wrong.count("<time") == 0
    assert ("paused" in good, "paused" in wrong) == (False, True)
    assert "minute, hour, day" in wrong


@pytest.mark.django_db
@pytest.mark.parametrize("evil", EVIL)
def test_no_name_reaches_the_page_unescaped(evil: str, root: Client) -> None:
    add_worker(f"w{evil}")
    insert_job("running", kind=evil, queue=evil, worker=f"w{evil}")
    insert_job(queue=evil)
    add_rollup(kind=evil)
    execute("INSERT INTO awa.queue_meta VALUES (%s, true, now(), %s)", evil, evil)
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES (%s, %s, 'a')", evil, evil)
    execute("UPDATE awa.leaders SET holder = %s, expires_at = now() + interval '1 h'", evil)
    page = root.get(reverse(PAGE)).content.decode()
    texts = [page, *panels(root).values()]
    for text in texts:
        for tag in ("<script>alert", "<img src=x", "<svg onload"):
            assert tag not in text
    assert 'style="' not in page.split('id="content-main"')[-1]


@pytest.mark.django_db
def test_it_is_for_those_who_may_see_the_queues_and_shows_each_what_they_may_see(login: Login) -> None:
    add_worker()
    add_worker("box:1:a/2", seen="10 min")
    insert_job("running", kind="shop.secret", worker="box:1:a/1")
    insert_job("scheduled", run_at=ago(minutes=3))
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('nightly', '* * * * *', 'a')")
    execute("UPDATE awa.leaders SET holder = 'chief', expires_at = now() + interval '1 h'")
    others = ("view_hotjob", "view_deferredjob", "view_runtimeinstance", "view_cronjob", "view_leaderlease")
    for name in (PAGE, DATA):
        assert login(*others).get(reverse(name)).status_code == 403
        assert login(is_staff=False).get(reverse(name)).status_code == 302
        assert Client().get(reverse(name)).status_code == 302
        assert login("view_queuemeta").post(reverse(name)).status_code == 405
    alone = login("view_queuemeta")
    seen = "".join([*panels(alone).values(), alone.get(reverse(PAGE)).content.decode()])
    for hidden in ("box:1:a", "shop.secret", "nightly", "chief", "/hotjob/", "/deferredjob/"):
        assert hidden not in seen
    assert "shop.secret" not in panels(login("view_queuemeta", "view_runtimeinstance"))["workers"]
    everything = panels(login("view_queuemeta", *others))
    assert "box:1:a/2" in everything["alerts"]
    assert "It is done by chief." in everything["alerts"]
    assert "shop.secret" in everything["workers"]
    assert "chief" in everything["duties"]
    assert "nightly" in everything["schedules"]


@pytest.mark.django_db
def test_the_index_of_the_admin_links_it(root: Client, login: Login) -> None:
    link = f'href="{reverse(PAGE)}"'
    assert link in root.get(reverse("admin:index")).content.decode()
    assert link in root.get(reverse("admin:awa_queuemeta_changelist")).content.decode()  # in the side bar
    assert link not in login("view_hotjob").get(reverse("admin:index")).content.decode()


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
    assert statements() == empty <= 18
    assert statements() == 2  # the session and the user: nothing of the queue


@pytest.mark.django_db
def test_a_look_leaves_no_setting_behind() -> None:
    assert look().snapshot is not None
    with connection.cursor() as cursor:
        for name, value in (("statement_timeout", "0"), ("lock_timeout", "0"), ("enable_sort", "on")):
            cursor.execute(f"SHOW {name}")
            assert cursor.fetchone() == (value,)


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "within"), [("0", "2s"), ("1s", "1s"), ("1min", "2s")])
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
        assert answer.wait(30)
        return empty_snapshot()

    monkeypatch.setattr(shared, "_ask", ask)
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
        assert answer.wait(30)
        return empty_snapshot()

    monkeypatch.setattr(shared, "_ask", ask)
    cache.delete(shared._key("mark"))  # its time is over
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(look)
        assert begun.wait(30)
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
def test_no_further_statement_is_begun_once_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert look().problem == ""
    assert "pg_stat_all_tables" in "".join(query["sql"] for query in captured)  # asked last
    cache.clear()
    monkeypatch.setattr(storage, "STATEMENT_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(storage, "list_cron_jobs", lambda _: time.sleep(1.1))
    with CaptureQueriesContext(connection) as captured:
        assert "did not answer" in look().problem
    assert "pg_stat_all_tables" not in "".join(query["sql"] for query in captured)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_a_locked_table_holds_nobody_up(connect: Connect, root: Client) -> None:
    other = connect(autocommit=False)
    other.execute("LOCK TABLE awa.scheduled_jobs IN ACCESS EXCLUSIVE MODE")
    assert "A table is locked" in panels(root)["status"]
    other.rollback()


def take() -> storage.Snapshot:
    cache.clear()
    found = look().snapshot
    assert found is not None
    return found


def ago(**duration: float) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        now: datetime = cursor.fetchone()[0]
    return now - timedelta(**duration)


def empty_snapshot() -> storage.Snapshot:
    return storage.Snapshot(
        now=datetime.fromisoformat("2026-05-01T12:00:00+00:00"),
        next_due_at=None,
        queues=[],
        queue_cap=1,
        running=[],
        failed={},
        stats=[],
        frontier=[storage.SpanRow(0)] * (len(storage.SPANS) + 1),
        workers=[],
        duties=[],
        schedules=[],
        tables=[],
    )
