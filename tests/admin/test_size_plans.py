"""What the lists ask of PostgreSQL: by which index, how far, how often, and for how long at most."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django.admin import jobs, limits, reach
from tests.admin.conftest import Login
from tests.factories import insert_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_tables")]

NAMES = ("hotjob", "deferredjob", "job")
BIG = frozenset({"jobs_hot", "scheduled_jobs"})
FILL = """
INSERT INTO awa.jobs_hot (kind, queue, state, finalized_at, errors)
SELECT 'k' || number % 3, 'q' || number % 3, state.name::awa.job_state,
    CASE WHEN state.name IN ('completed', 'failed') THEN now() END, ARRAY[]::jsonb[]
FROM generate_series(1, 4000) AS number
CROSS JOIN LATERAL (
    SELECT CASE number % 40
        WHEN 0 THEN 'failed' WHEN 1 THEN 'available' WHEN 2 THEN 'running' ELSE 'completed'
    END
) AS state (name);
INSERT INTO awa.scheduled_jobs (kind, queue, state, run_at)
SELECT 'k' || number % 3, 'q' || number % 3,
    (CASE number % 40 WHEN 0 THEN 'retryable' ELSE 'scheduled' END)::awa.job_state,
    now() + (number % 50) * interval '1 s'
FROM generate_series(1, 4000) AS number;
ANALYZE awa.jobs_hot, awa.scheduled_jobs;
"""
# As if analyzed when drained: the planner reckons with one row, and finds every index equally good.
MISLEAD = """
UPDATE pg_class SET reltuples = 0 WHERE oid IN ('awa.jobs_hot'::regclass, 'awa.scheduled_jobs'::regclass)
"""


def url(name: str, query: str = "") -> str:
    return reverse(f"admin:awa_{name}_changelist") + query


@contextmanager
def plans() -> Iterator[list[dict[str, Any]]]:
    """The plan, with what it met, of each statement that names jobs: taken where and as it is sent."""
    found: list[dict[str, Any]] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT") and '"awa"."' in sql and "jobs" in sql:
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
                [(plan,)] = cursor.fetchall()
            found.append((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)


def met(node: dict[str, Any]) -> int:
    return int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])


@pytest.fixture(params=["true statistics", "misleading statistics"])
def filled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.JobAdmin, "list_per_page", 10)
    for name in ("WINDOW", "WINDOW_BY_INSTANT", "WINDOW_IN_JSON"):
        monkeypatch.setattr(reach, name, 200)
    monkeypatch.setattr("awa_django.admin.base.COUNT_CAP", 100)
    monkeypatch.setattr(reach, "COUNT_CAP", 100)
    with connection.cursor() as cursor:
        cursor.execute(FILL)
        if request.param == "misleading statistics":
            cursor.execute(MISLEAD)


QUERIES = (
    "", "?before=end", "?o=1", "?o=-5", "?state=failed", "?state=available", "?state=available&queue=q1",
    "?state=running", "?state=completed", "?state=retryable", "?ended=timed_out", "?queue=none", "?kind=none",
    "?kind=k1", "?queue=q1", "?kind=k1&queue=none", "?state=failed&kind=none", "?q=k", "?q=none", "?q=17",
    "?q=tag:none", "?q=arg:a=1", "?state=failed&before=end", "?kind=k1&before=end", "?q=" + "f" * 32,
)  # fmt: skip


@pytest.mark.fault("U39", injected="each list, filter, search, sort and page over large tables: the plans")
def test_no_list_scans_a_table_or_walks_further_than_its_window(filled: None, root: Client) -> None:
    """Never more than the window and its end, or what is counted; however rare what is looked for is."""
    for name in NAMES:
        for query in QUERIES:
            if name != "hotjob" and "ended" in query:
                continue
            with plans() as found:
                assert root.get(url(name, query)).status_code == 200
            assert found or query == "?q=" + "f" * 32
            for plan in found:
                for node in nodes(plan):
                    where = (name, query, node["Node Type"], node.get("Index Name"))
                    if node.get("Relation Name") in BIG:
                        assert node["Node Type"] not in ("Seq Scan", "Bitmap Heap Scan"), where
                        assert met(node) <= 202, where
                    assert node["Node Type"] != "Sort", where


@pytest.mark.parametrize(
    ("name", "query", "index"),
    [
        ("hotjob", "", "jobs_hot_pkey"),
        ("hotjob", "?state=failed", "jobs_hot_attention"),
        ("hotjob", "?state=running", "jobs_hot_running"),
        ("hotjob", "?state=available&queue=q1", "jobs_hot_claim"),
        ("job", "?state=failed", "jobs_hot_attention"),
        ("deferredjob", "", "scheduled_jobs_due"),
        ("deferredjob", "?kind=k1", "scheduled_jobs_kind_due"),
        ("deferredjob", "?queue=q1", "scheduled_jobs_queue_due"),
        ("deferredjob", "?o=1", "scheduled_jobs_pkey"),
        ("deferredjob", "?q=17", "scheduled_jobs_pkey"),
    ],
)
def test_a_list_is_read_by_its_index(name: str, query: str, index: str, filled: None, root: Client) -> None:
    with plans() as found:
        root.get(url(name, query))
    used = {node["Index Name"] for plan in found for node in nodes(plan) if "Index Name" in node}
    assert index in used
    assert used - {index} <= ({"jobs_hot_pkey"} if "claim" in index else set())


def statements(client: Client, address: str) -> list[str]:
    """Those of a page, without the savepoints of the test's own transaction and what is taken back in it."""
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    sent = [query["sql"] for query in queries]
    taken_back = r"SELECT\s+set_config\('statement_timeout'.*'enable_sort', 'on'"
    return [sql for sql in sent if not re.match(rf"SAVEPOINT|RELEASE|{taken_back}", sql, re.DOTALL)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "query",
    [
        "",
        "?before=end",
        "?state=failed",
        "?state=available",
        "?queue=q",
        "?q=k",
        "?q=tag:a",
        "?q=" + "0" * 32,
    ],
)
@pytest.mark.fault("U40", injected="lists of few and of many rows: the statements")
def test_at_most_eight_statements_however_many_rows(name: str, query: str, login: Login) -> None:
    client = login(f"view_{name}")
    key = bytes(16)

    def add(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO awa.jobs_hot (kind, queue, tags, state, finalized_at) "
                "SELECT 'k', 'q', '{a}', state::awa.job_state, CASE state WHEN 'failed' THEN now() END "
                "FROM generate_series(1, %s), unnest(ARRAY['available', 'failed']) AS state",
                [number // 2],
            )
            cursor.execute(
                "INSERT INTO awa.scheduled_jobs (kind, queue, tags, run_at) "
                "SELECT 'k', 'q', '{a}', now() + interval '1 hour' FROM generate_series(1, %s)",
                [number],
            )

    insert_job(unique_key=key, unique_states="11111111")
    insert_job("scheduled", unique_key=bytes([1] * 16), unique_states="11111111")
    add(2)
    client.get(url(name, query))
    few = statements(client, url(name, query))
    add(60)
    assert len(statements(client, url(name, query))) == len(few) <= 8
    assert not [sql for sql in few if "DISTINCT" in sql.upper()]


@pytest.mark.fault("U39", injected="a page whose statement takes too long")
def test_a_page_that_takes_too_long_says_so_and_leaves_nothing_behind(
    root: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_job(kind="one")
    names = ("statement_timeout", "enable_seqscan", "enable_sort", "enable_bitmapscan", "jit")

    def shown() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))
            return list(cursor.fetchone())

    before = shown()
    assert root.get(url("hotjob")).status_code == 200
    assert shown() == before

    settings.AWA = {"ADMIN_STATEMENT_TIMEOUT": 0.5}

    def sleep(*_: object, **__: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(reach.Reach, "end", sleep)
    for query in ("?state=failed", ""):
        response = root.get(url("hotjob", query))
        page = response.content.decode()
        assert response.status_code == 503
        assert "more than 0.5 s" in page
        assert ("The list without filters" in page) == bool(query)
        assert shown() == before
    monkeypatch.setattr("awa_django.admin.queues.known_queues", sleep)
    assert root.get(url("queuemeta")).status_code == 503
    response = root.post(url("hotjob"), {"action": "retry_jobs", "_selected_action": 1, "index": "0"})
    assert response.status_code == 503


def test_other_errors_of_the_database_are_no_page(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(reach.Reach, "end", fail)
    with pytest.raises(OperationalError, match="gone"):
        root.get(url("hotjob"))


@pytest.mark.parametrize(
    ("role", "ours", "holds"),
    [("0", 5, "5s"), ("4s", 5, "4s"), ("1min", 5, "5s"), ("1min", None, "1min")],
)
def test_the_lower_limit_holds(role: str, ours: int | None, holds: str, settings: Any) -> None:
    settings.AWA = {"ADMIN_STATEMENT_TIMEOUT": ours}
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [role])
        with limits.limited("default"):
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == (holds,)
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == (role,)
