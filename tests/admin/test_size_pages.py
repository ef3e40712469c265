"""Pages by key: each job once, in order, whatever goes meanwhile and whatever the URL says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django.admin import base, jobs, reach
from awa_django.models import DeferredJob, HotJob
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

HOT, DEFERRED, ALL = (reverse(f"admin:awa_{name}_changelist") for name in ("hotjob", "deferredjob", "job"))
KEY = bytes(range(16))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.JobAdmin, "list_per_page", 3)


def listed(root: Client, url: str, query: str = "") -> Any:
    response = root.get(url + query)
    assert response.status_code == 200
    return response.context["cl"]


def ids(changelist: Any) -> list[int]:
    return [job.pk for job in changelist.result_list]


def walk(root: Client, url: str, query: str, way: str) -> list[list[int]]:
    """The ids of each page from this one on, by its links."""
    found = []
    changelist = listed(root, url, query)
    while True:
        found.append(ids(changelist))
        link = getattr(changelist.pages, way)
        if not link:
            return found
        assert len(found) < 20
        changelist = listed(root, url, link)


def defer_at_one_instant(number: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.scheduled_jobs (kind, run_at) "
            "SELECT 'k', now() + interval '1 hour' FROM generate_series(1, %s) RETURNING id",
            [number],
        )
        return [row[0] for row in cursor.fetchall()]


@pytest.mark.parametrize("url", [HOT, ALL])
def test_pages_go_on_behind_a_row_both_ways(url: str, root: Client) -> None:
    made = [insert_job() for _ in range(8)][::-1]
    forwards = [made[:3], made[3:6], made[6:]]
    assert walk(root, url, "", "next") == forwards
    assert walk(root, url, "?before=end", "previous") == [made[5:], made[2:5], made[:3]]
    assert walk(root, url, "?o=1", "next") == [made[::-1][:3], made[::-1][3:6], made[::-1][6:]]
    first, last = listed(root, url).pages, listed(root, url, "?before=end").pages
    assert (first.first, first.previous, last.next, last.last) == ("", "", "", "")
    assert last.first == "?"


def test_jobs_of_one_instant_are_on_one_page_each(root: Client) -> None:
    made = defer_at_one_instant(7)
    assert walk(root, DEFERRED, "", "next") == [made[:3], made[3:6], made[6:]]
    assert walk(root, DEFERRED, "?before=end", "previous") == [made[4:], made[1:4], made[:3]]
    assert walk(root, DEFERRED, "?kind=k&o=-5", "next") == [made[:3:-1], made[3:0:-1], made[:1]]
    assert re.fullmatch(r"\?after=\d{8}T\d{6}\.\d{6}Z~\d+", listed(root, DEFERRED).pages.next)


def test_a_list_of_one_page_has_no_links(root: Client) -> None:
    for _ in range(3):
        insert_job()
    page = root.get(HOT)
    assert 'rel="next"' not in page.content.decode()
    assert page.context["cl"].pages.last == ""


def test_rows_that_vanish_move_no_other_to_another_page(root: Client) -> None:
    made = [insert_job() for _ in range(9)][::-1]
    link = listed(root, HOT).pages.next
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.jobs_hot WHERE id = ANY(%s)", [[made[0], made[2]]])
    changelist = listed(root, HOT, link)
    assert ids(changelist) == made[3:6]
    # Before it there is no page in full any more: the first one is shown.
    assert ids(listed(root, HOT, changelist.pages.previous)) == [made[1], *made[3:5]]


def test_behind_the_last_row_the_way_back_is_shown(root: Client) -> None:
    last = insert_job()
    for _ in range(4):
        insert_job()
    changelist = listed(root, HOT, f"?after={last}")
    assert ids(changelist) == []
    assert changelist.result_count == 5
    assert changelist.pages.first
    assert last in ids(listed(root, HOT, changelist.pages.last))


@pytest.mark.parametrize(
    "value",
    [
        "abc", "-1", "1.5", "²", "9" * 19, "9" * 400, "1~2", "~", "~17", "%00", "' OR 1=1 --",
        "20261130T031201.123456Z", "99999999T999999.9Z~1", "20261130T031201.123456Z~x", "end",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["after", "before", "from"])
def test_a_place_that_is_none_is_left_out(name: str, value: str, root: Client) -> None:
    made = insert_job()
    deferred = insert_job("scheduled")
    changelist = listed(root, HOT, f"?{name}={value}")
    assert ids(changelist) == [made]
    assert (changelist.pages.first, changelist.window) == ("", None)
    assert ids(listed(root, DEFERRED, f"?{name}={value}&p=-3&o=99.-.x")) == [deferred]


def test_an_action_on_a_further_page_comes_back_to_it(root: Client) -> None:
    made = [insert_job("failed") for _ in range(4)][::-1]
    url = HOT + listed(root, HOT, "?state=failed").pages.next
    assert "state=failed" in url
    response = root.post(url, {"action": "retry_jobs", "_selected_action": made[3], "index": "0"})
    assert response["Location"] == url
    assert HotJob.objects.get(pk=made[3]).state == "available"


def test_a_filter_that_no_index_serves_looks_through_a_window(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "WINDOW", 4)
    rare = [insert_job(queue="rare") for _ in range(2)]
    made = [insert_job() for _ in range(4)]
    page = root.get(HOT, {"queue": "rare"})
    changelist = page.context["cl"]
    assert (ids(changelist), changelist.result_count) == ([], 0)
    assert f"4 were looked through, up to {rare[1]}." in " ".join(page.content.decode().split())
    further = listed(root, HOT, changelist.window.next_url)
    assert ids(further) == rare[::-1]
    assert further.window.next_url == ""
    assert further.window.restart_url == "?queue=rare"
    assert listed(root, HOT).window is None
    assert ids(listed(root, HOT, f"?queue=default&from={made[1]}")) == [made[1], made[0]]
    assert f"from={made[2]}" in listed(root, HOT, f"?from={made[2]}").pages.next


def test_a_window_among_jobs_of_one_instant(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WINDOW_BY_INSTANT", 3)
    made = defer_at_one_instant(5)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.scheduled_jobs SET state = 'retryable' WHERE id = ANY(%s)", [made[2:4]])
    changelist = listed(root, DEFERRED, "?state=retryable&kind=k")
    assert ids(changelist) == [made[2]]
    assert ids(listed(root, DEFERRED, changelist.window.next_url)) == [made[3]]
    assert listed(root, DEFERRED, "?kind=k").window is None


def test_of_available_jobs_those_first_in_line_are_shown(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "COUNT_CAP", 2)
    monkeypatch.setattr(reach, "COUNT_CAP", 2)
    _, late, first, second = (insert_job(queue="mail", priority=priority) for priority in (5, 4, 1, 2))
    page = root.get(HOT, {"state": "available", "queue": "mail"})
    assert ids(page.context["cl"]) == [second, first, late]  # one more than is counted, and no further page
    assert page.context["cl"].pages.next == ""
    assert "Only 2 of the available jobs" in page.content.decode()
    assert listed(root, HOT, "?state=available&queue=none").line_cap == 0


def test_search_for_a_tag_and_an_argument(root: Client) -> None:
    tagged = insert_job(tags=["vip", "a"])
    number = insert_job(args={"order_id": 17, "address": {"city": "Bonn"}})
    text = insert_job(args={"order_id": "17", "password": "hunter2"})
    for term, found in (
        ("tag:vip", [tagged]),
        ("tag: a ", [tagged]),
        ("tag:vi", []),
        ("arg:order_id=17", [text, number]),
        ("arg:address.city=Bonn", [number]),
        ("arg:order_id=1e999", []),
        ("arg:order_id=NaN", []),
        ('arg:order_id="\\u0000"', []),
        ('arg:order_id="\\ud800"', []),
        ("arg:order_id=" + "[" * 5000, []),
        ("tag:", []),
    ):
        response = root.get(HOT, {"q": term})
        assert (response.status_code, ids(response.context["cl"])) == (200, found), term
    for term, problem in (
        ("arg:password=hunter2", "masked"),
        ("arg:a.api_key=x", "masked"),
        ("arg:order_id", "Write arg:"),
        ("arg:=1", "Write arg:"),
        ("arg:a..b=1", "Write arg:"),
    ):
        response = root.get(HOT, {"q": term})
        assert ids(response.context["cl"]) == []
        assert problem in response.content.decode()


@pytest.mark.fault("F87", injected="a search for the value of a secret, to see whether it is right")
def test_a_declared_secret_cannot_be_guessed(root: Client) -> None:
    insert_job(args={"card": 17, "plain": 1}, metadata={"awa:secret": ["card"]})
    shown = insert_job(args={"card": 17, "nested": [{"card": 5}]})
    assert ids(listed(root, HOT, "?q=arg:card=17")) == [shown]
    assert ids(listed(root, HOT, '?q=arg:nested=[{"card": 5}]')) == [shown]
    assert len(ids(listed(root, HOT, "?q=arg:plain=1"))) == 1


def test_filters_that_contradict_each_other_find_nothing(root: Client) -> None:
    insert_job("failed", kind="a")
    deferred = insert_job("scheduled", kind="a")
    assert ids(listed(root, HOT, "?state=cancelled&ended=timed_out")) == []
    assert ids(listed(root, HOT, "?kind=b&q=a")) == []
    assert ids(listed(root, DEFERRED, "?kind=a&q=a")) == [deferred]
    assert DeferredJob.objects.count() == 1
