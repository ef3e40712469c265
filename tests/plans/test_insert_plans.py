"""The statements of producers and of those who look a job up, over tables with something in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from awa_django.storage._sql import statement
from awa_django.storage.operate import Match

# One process: what fills the tables takes longer than the tests.
pytestmark = pytest.mark.xdist_group("insert plans")

ROWS = 20_000
JOB = {
    "kind": "k",
    "queue": "default",
    "args": "{}",
    "priority": 2,
    "max_attempts": 25,
    "metadata": "{}",
    "tags": "{}",
    "run_at": None,
    "delay": None,
    "unique_key": b"x" * 16,
    "unique_states": "11101001",
}


class Jobs:
    """20,000 hot jobs of which half hold a key, and 20,000 deferred ones, in a transaction of their own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute(
            """
            INSERT INTO awa.jobs_hot (kind, unique_key, unique_states)
            SELECT 'k', CASE WHEN n %% 2 = 0 THEN decode(md5(n::text), 'hex') END, B'11101001'
            FROM generate_series(1, %(rows)s) AS n
            """,
            {"rows": ROWS},
        )
        connection.execute(
            """
            INSERT INTO awa.scheduled_jobs (kind, run_at)
            SELECT 'k', now() + n * interval '1 second' FROM generate_series(1, %(rows)s) AS n
            """,
            {"rows": ROWS},
        )
        connection.execute("ANALYZE awa.jobs_hot, awa.scheduled_jobs, awa.job_unique_claims")

    def plan(self, name: str, options: str = "COSTS OFF", **params: Any) -> str:
        lines = self._connection.execute(f"EXPLAIN ({options}) {statement(name)}", params)
        return "\n".join(line for (line,) in lines)


@pytest.fixture(scope="module")
def jobs(database_url: str) -> Iterator[Jobs]:
    # Values are put into statements as Django does it.
    with psycopg.connect(database_url, cursor_factory=psycopg.ClientCursor) as connection:
        yield Jobs(connection)
        connection.rollback()


def scans(text: str) -> list[str]:
    """The tables of jobs and claims that the plan walks through."""
    return re.findall(r"Seq Scan on (\w+)", text)


def test_find_job_uses_both_primary_keys(jobs: Jobs) -> None:
    found = jobs.plan("find_job", job_id=1)
    assert "jobs_hot_pkey" in found
    assert "scheduled_jobs_pkey" in found
    assert scans(found) == []


def test_holders_are_found_by_the_index_of_keys(jobs: Jobs) -> None:
    found = jobs.plan("find_unique_holders", unique_keys=[b"a" * 16, b"b" * 16])
    assert "idx_awa_jobs_unique" in found
    assert scans(found) == []


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("insert_job", JOB),
        ("insert_job_at", JOB),
        ("insert_unique_job", JOB),
        ("take_unique_keys", {"unique_keys": [b"a" * 16], "job_ids": [1]}),
    ],
)
def test_insert_reads_nothing_but_the_few_who_wait(name: str, params: dict[str, Any], jobs: Jobs) -> None:
    found = jobs.plan(name, **params)
    assert "Insert on" in found
    assert set(scans(found)) <= {"waiters"}
    assert "Index" not in found.replace("Conflict Arbiter Indexes", "")


@pytest.mark.parametrize("args", [None, "{}"])
def test_holder_is_changed_by_the_keys_of_both_tables(args: str | None, jobs: Jobs) -> None:
    found = jobs.plan(
        "change_holder", unique_key=b"a" * 16, args=args, reschedules=True, run_at=None, delay="1 hour"
    )
    for index in ("idx_awa_jobs_unique", "jobs_hot_pkey", "scheduled_jobs_pkey"):
        assert index in found
    assert scans(found) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"kind": "rare"},
        {"queue": "rare"},
        {"tags": ["rare"]},
        {"states": ["failed"], "ended": "rescued"},
        {
            "except_kind": "rare",
            "except_queue": "rare",
            "except_priority": 3,
            "except_run_at": "2030-01-01T00:00Z",
        },
    ],
    ids=str,
)
@pytest.mark.parametrize("table", ["jobs_hot", "scheduled_jobs"])
def test_look_for_what_matches_reads_a_bounded_piece_by_the_primary_key(
    table: str, filters: dict[str, Any], jobs: Jobs
) -> None:
    which = "hot" if table == "jobs_hot" else "deferred"
    params = {**Match(2**62, **filters)._asdict(), "table": which, "after_id": 0}
    found = jobs.plan("matching", "ANALYZE, COSTS OFF, TIMING OFF", **params, row_count=500)
    [scan] = [line for line in found.splitlines() if " on jobs_hot" in line or " on scheduled_jobs" in line]
    assert f"Index Scan using {table}_pkey" in scan
    assert "rows=500" in scan


@pytest.mark.parametrize("filters", [{}, {"kind": "k", "queue": "default", "states": ["available"]}], ids=str)
def test_what_still_matches_is_locked_by_the_primary_keys(filters: dict[str, Any], jobs: Jobs) -> None:
    params = {**Match(2**62, **filters)._asdict(), "job_ids": list(range(1, 101))}
    found = jobs.plan("still_matching", **params)
    indexes = set(re.findall(r"\b(?:jobs_hot|scheduled_jobs)_\w+", found))
    assert indexes == {"jobs_hot_pkey", "scheduled_jobs_pkey"}
    assert scans(found) == []
