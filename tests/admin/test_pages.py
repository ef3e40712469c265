"""What the pages show: exact, masked, and without asking the big tables for everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django.admin import base, queues
from awa_django.models import Job
from tests.admin.conftest import Login
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

LISTS = (
    "hotjob", "deferredjob", "job", "uniqueclaim", "queuemeta", "cronjob", "runtimeinstance", "leaderlease"
)  # fmt: skip
EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "</pre></title></textarea><svg onload=alert(1)>",
    "{{ 7|add:7 }}{% debug %}",
    "javascript:alert(1)",
    "%s%(x)s{0}{x}",
]
KEY = bytes(range(16))


def url(name: str, query: str = "") -> str:
    return reverse(f"admin:awa_{name}_changelist") + query


def detail(job_id: int, name: str = "job") -> str:
    return reverse(f"admin:awa_{name}_change", args=[job_id])


def test_the_page_of_a_job_is_exact_and_masked(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.jobs_hot (kind, args, metadata, errors) "
            "VALUES ('a', %s, %s, %s::jsonb[]) RETURNING id",
            [
                '{"big": 123456789012345678901234567890, "exact": 1.10, "password": "hunter2"}',
                '{"api_key": ["hunter2"], "shown": "visible"}',
                [
                    json.dumps({"error": "first", "attempt": 1}),
                    json.dumps({"error": "token=hunter2", "traceback": "password='hunter2'", "attempt": 2}),
                ],
            ],
        )
        job_id = cursor.fetchone()[0]
    page = root.get(detail(job_id, "hotjob")).content.decode()
    assert "123456789012345678901234567890" in page
    assert "1.10" in page
    assert "visible" in page
    assert "hunter2" not in page
    assert page.index("Attempt 2") < page.rindex("Attempt 1")  # newest first


@pytest.mark.fault("F53", injected="undecodable rows in the lists and pages of the admin")
def test_a_row_that_python_cannot_decode_has_its_page_and_breaks_no_list(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.jobs_hot (kind, args, errors) "
            "VALUES ('a', jsonb_build_object('n', %s::numeric), "
            "ARRAY[to_jsonb(%s::numeric), '\"text\"', '[1]']) RETURNING id",
            ["9" * 5000, "8" * 5000],
        )
        job_id = cursor.fetchone()[0]
    assert root.get(url("hotjob")).status_code == 200
    page = root.get(detail(job_id)).content.decode()
    assert "9" * 5000 in page
    assert "8" * 5000 in page


def test_a_huge_value_is_cut(root: Client) -> None:
    job_id = insert_job(args={"text": "x" * 300_000})
    page = root.get(detail(job_id)).content.decode()
    assert len(page) < 150_000
    assert "cut here: 300,012 characters in all" in page


def test_the_key_names_its_holder(root: Client, login: Login) -> None:
    holder = insert_job(unique_key=KEY, unique_states="11101001")
    loser = insert_job("failed", unique_key=KEY, unique_states="11101001")
    link = f'href="{detail(holder)}"'
    assert link in root.get(detail(loser)).content.decode()
    assert "this job" in root.get(detail(holder)).content.decode()
    claims = root.get(url("uniqueclaim")).content.decode()
    assert link in claims
    assert KEY.hex() in claims
    assert link not in login("view_hotjob").get(detail(loser, "hotjob")).content.decode()


def test_a_job_that_moved_is_found_on_its_new_page(root: Client, login: Login) -> None:
    job_id = insert_job("scheduled")
    assert root.get(detail(job_id, "hotjob"))["Location"] == detail(job_id, "deferredjob")
    assert login("view_hotjob").get(detail(job_id, "hotjob")).status_code == 404
    for nowhere in (10**15, 10**30):
        for name in ("hotjob", "deferredjob", "job"):
            assert root.get(detail(nowhere, name)).status_code == 404


def shown_ids(response: Any) -> list[int]:
    return [row.pk for row in response.context["cl"].result_list]


def test_search_by_id_kind_and_held_key(root: Client) -> None:
    first = insert_job(kind="shop.send_receipt", unique_key=KEY, unique_states="11101001")
    second = insert_job(kind="shop.remind")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.job_kinds (kind) VALUES ('shop.send_receipt'), ('shop.remind')")
    for name in ("hotjob", "job"):
        for term, found in (
            (str(second), [second]),
            ("shop.send_receipt", [first]),
            ("RECEIPT", [first]),
            ("shop", [second, first]),
            (KEY.hex().upper(), [first]),
            ("9" * 40, []),
            ("nothing", []),
            (" ", [second, first]),
        ):
            assert shown_ids(root.get(url(name), {"q": term})) == found, term
    assert len(shown_ids(root.get(url("uniqueclaim"), {"q": KEY.hex()}))) == 1
    assert shown_ids(root.get(url("uniqueclaim"), {"q": "xyz"})) == []


def test_filters_by_state_queue_and_kind(root: Client) -> None:
    mail = insert_job("failed", queue="mail", kind="a")
    other = insert_job(queue="other", kind="b")
    assert shown_ids(root.get(url("hotjob"), {"state": "failed"})) == [mail]
    assert shown_ids(root.get(url("hotjob"), {"queue": "other"})) == [other]
    assert shown_ids(root.get(url("job"), {"kind": "a"})) == [mail]
    for wrong in ("bogus", "\x00", "' OR 1=1 --"):
        for parameter in ("state", "queue", "kind"):
            assert shown_ids(root.get(url("hotjob"), {parameter: wrong})) == []


@pytest.mark.parametrize(
    "query", ["args__private__startswith=x", "metadata__a=1", "id__gt=1", "kind__regex=(a+)%2B"]
)
def test_no_lookup_but_the_filters(query: str, root: Client) -> None:
    assert root.get(url("hotjob", f"?{query}")).status_code == 400


@pytest.mark.parametrize(
    "query", ["?o=2.3.-4", "?p=abc", "?p=10**9", "?o=x", "?q=%00", "?all=", "?_facets=True"]
)
def test_strange_parameters_are_survived(query: str, root: Client) -> None:
    insert_job()
    assert root.get(url("hotjob", query), follow=True).status_code == 200


def test_only_indexed_columns_sort(root: Client) -> None:
    for name, allowed in (("hotjob", {"id"}), ("deferredjob", {"id", "run_at"}), ("job", {"id"})):
        for column in range(1, 9):
            ordered = root.get(url(name), {"o": str(column)}).context["cl"].queryset.query.order_by
            assert {str(field).removeprefix("-") for field in ordered} <= allowed | {"pk"}


def test_counts_stop_at_a_cap(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "COUNT_CAP", 3)
    for _ in range(3):
        insert_job()
    assert "over" not in root.get(url("hotjob")).content.decode().split("paginator")[1]
    insert_job()
    with CaptureQueriesContext(connection) as queries:
        page = root.get(url("hotjob")).content.decode()
    assert "over 3 hot jobs" in page
    counts = [
        query["sql"] for query in queries if "COUNT(" in query["sql"].upper() and "jobs_hot" in query["sql"]
    ]
    assert counts
    assert all("LIMIT 4" in sql for sql in counts)


@pytest.mark.parametrize("name", LISTS)
def test_statements_do_not_grow_with_the_rows(name: str, root: Client) -> None:
    def add(number: int) -> None:
        key = bytes([number] * 16)
        insert_job(queue=f"q{number}", unique_key=key, unique_states="11101001")
        insert_job("scheduled", queue=f"q{number}")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO awa.job_kinds (kind) VALUES (%s)", [f"k{number}"])
            cursor.execute(
                "INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES (%s, '@daily', 'k')", [str(number)]
            )
            cursor.execute(
                "INSERT INTO awa.runtime_instances (name, hostname, pid, version) VALUES (%s, 'h', 1, '1')",
                [str(number)],
            )

    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert root.get(url(name)).status_code == 200
        assert not any("DISTINCT" in query["sql"].upper() for query in queries)
        return len(queries)

    add(0)
    statements()  # the first page of a process may ask for more
    few = statements()
    for number in range(1, 30):
        add(number)
    assert statements() == few
    assert few <= 8


def test_a_job_takes_a_constant_number_of_statements(root: Client) -> None:
    def statements(job_id: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert root.get(detail(job_id)).status_code == 200
        # The transaction round them is a savepoint within that of the test.
        around = ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
        return sum(not query["sql"].startswith(around) for query in queries)

    job = insert_job(unique_key=KEY, unique_states="11101001")
    statements(job)  # the first page of a process asks for the content types
    plain = statements(job)
    full = insert_job("failed", unique_key=KEY, errors=[{"error": str(n)} for n in range(80)])
    assert statements(full) <= plain <= 8
    assert "30 older entries are not shown" in root.get(detail(full)).content.decode()


def test_small_pages_show_what_matters(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, timezone, kind, paused) VALUES "
            "('good', '0 3 * * *', 'UTC', 'k', false), ('bad', 'nonsense', 'UTC', 'k', false), "
            "('zone', '0 3 * * *', 'No/Where', 'k', false), ('paused', '0 3 * * *', 'UTC', 'k', true)"
        )
        cursor.execute(
            "INSERT INTO awa.runtime_instances (name, hostname, pid, version, draining, last_seen_at) VALUES "
            "('a', 'h', 1, '1', false, now()), ('b', 'h', 2, '1', true, now()), "
            "('c', 'h', 3, '1', false, now() - interval '5 minutes'), "
            "('d', 'h', 4, '1', true, now() - interval '11 minutes')"
        )
    cron = root.get(url("cronjob")).content.decode()
    assert cron.count("03:00:00 UTC<") == 2 * 11  # the next one, and ten behind it
    assert cron.count("cannot be computed") == 2
    workers = root.get(url("runtimeinstance")).content.decode()
    assert [workers.count(f">{word}<") for word in ("alive", "draining", "silent", "gone")] == [1] * 4
    assert root.get(url("leaderlease")).content.decode().count("nobody") == 6


def test_queue_counts_stop_at_a_cap(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "COUNT_CAP", 2)
    for _ in range(4):
        insert_job()
    page = root.get(url("queuemeta")).content.decode()
    assert "over 2" in page


def test_queues_page_counts_and_links(root: Client) -> None:
    insert_job(queue="a&b=c/d")
    page = root.get(url("queuemeta")).content.decode()
    assert "a&amp;b=c/d" in page
    assert "queue=a%26b%3Dc%2Fd" in page
    assert shown_ids(root.get(url("hotjob", "?state=available&queue=a%26b%3Dc%2Fd"))) == [
        Job.objects.get().pk
    ]
