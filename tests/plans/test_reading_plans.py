"""EXPLAIN of what is read for people: bounded index scans, on tables that statistics call empty and full.

The mix is that of test_plans.py, with 20,000 deferred rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from awa_django.doctor import QUESTIONS as DOCTORS_QUESTIONS
from awa_django.doctor import Question
from awa_django.doctor.questions import Reads
from awa_django.storage._sql import statement
from awa_django.storage.dashboard import SPANS
from tests.plans.test_plans import (
    DEFER,
    DRAIN_AND_ANALYZE,
    FILL,
    FORGET_HEIGHTS,
    QUEUES,
    Mix,
)

# One process: what fills the tables takes longer than the tests.
pytestmark = pytest.mark.xdist_group("reading plans")

PARAMS: dict[str, dict[str, object]] = {
    "queue_status": {
        "queues": QUEUES,
        "with_others": True,
        "cap": 1_000,
        "failed_cap": 2_000,
        "soon": 3600.0,
    },
    "processes": {"processes_cap": 500, "running_cap": 2_000},
    "dashboard/frontier": {"starts": [None, *SPANS], "ends": [*SPANS, None], "cap": 10_000},
    "dashboard/stats": {"minutes": 60, "cap": 5_000},
    "known_names": {"limit": 100, "search": None},
    "mean_runs": {"minutes": 60},
    "next_due": {"since": None},
}
BIG = ("jobs_hot", "scheduled_jobs", "queue_stats")
INDEXES = {
    "queue_status": {"jobs_hot_claim", "jobs_hot_running", "jobs_hot_attention", "scheduled_jobs_queue_due"},
    "processes": {"jobs_hot_running"},
    "dashboard/frontier": {"scheduled_jobs_due"},
    "dashboard/stats": {"queue_stats_pkey"},
    "known_names": {"jobs_hot_claim", "scheduled_jobs_queue_due"},
    "mean_runs": {"queue_stats_pkey"},
    "next_due": {"scheduled_jobs_due"},
}


@pytest.fixture(scope="module", params=["stale statistics", "fresh statistics"])
def mix(request: pytest.FixtureRequest, database_url: str) -> Iterator[Mix]:
    with psycopg.connect(database_url, prepare_threshold=None) as connection:
        is_stale = request.param == "stale statistics"
        if is_stale:
            connection.execute(DRAIN_AND_ANALYZE.replace("150000", "20000"))
        connection.execute(FILL)
        connection.execute(DEFER, [20_000])
        connection.execute(
            "INSERT INTO awa.queue_stats (minute, queue, kind, wait_histogram) "
            "SELECT date_trunc('minute', now()) - minute * interval '1 min', 'mail', 'kind' || kind, '{1,2}' "
            "FROM generate_series(0, 200) AS minute, generate_series(1, 20) AS kind"
        )
        connection.execute(
            FORGET_HEIGHTS if is_stale else "ANALYZE awa.jobs_hot, awa.scheduled_jobs, awa.queue_stats"
        )
        connection.execute(statement("dashboard/bounds"), {"milliseconds": 60_000})
        yield Mix(connection, [], is_stale)
        connection.rollback()


@pytest.mark.parametrize("name", sorted(PARAMS))
def test_a_look_reads_by_the_indexes_that_its_statements_name(name: str, mix: Mix) -> None:
    plan = mix.explain(name, PARAMS[name])
    assert not plan.scanned & set(BIG)
    assert {index for index in plan.indexes if index.startswith(BIG)} == INDEXES[name]


@pytest.mark.parametrize("name", ["queue_status", "dashboard/frontier"])
def test_a_look_reads_no_more_than_its_caps(name: str, mix: Mix) -> None:
    cap = 7
    params = {**PARAMS[name], "cap": cap, "failed_cap": cap, "soon": 1.0}
    row = mix.connection.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(name), params
    ).fetchone()
    assert row is not None

    def read(node: dict[str, object]) -> Iterator[tuple[float, float]]:
        # What runs is read as a whole.
        if node.get("Relation Name") in BIG and node.get("Index Name") != "jobs_hot_running":
            pages = int(str(node["Shared Hit Blocks"])) + int(str(node["Shared Read Blocks"]))
            # Of each loop; a page of the table a row, as no VACUUM has been, and a few of the index.
            yield float(str(node["Actual Rows"])), pages / int(str(node["Actual Loops"])) - cap
        for child in node.get("Plans", []):  # type: ignore[attr-defined]
            yield from read(child)

    found = list(read(row[0][0]["Plan"]))
    assert found
    assert max(rows for rows, _ in found) <= cap
    assert max(pages for _, pages in found) <= 12


# Which indexes the doctor's question may go by, of those whose answer is in the tables of jobs and claims.
KEYS = {"jobs_hot_pkey", "scheduled_jobs_pkey", "idx_awa_jobs_unique"}
DOCTORS_INDEXES = {
    Reads.JOBS: KEYS,
    Reads.CLAIMS: KEYS,
    Reads.LITTLE: {
        "jobs_hot_pkey", "scheduled_jobs_pkey", "jobs_hot_running", "jobs_hot_claim", "scheduled_jobs_due",
    },
}  # fmt: skip
DOCTORS_VALUES: dict[str, object] = {
    "silent_for": 60, "overdue_by": 60, "older_than": 60, "promotion_overdue_by": 60, "dead_at_least": 1,
    "unvacuumed_for": 60, "after_key": None, "last_key": b"\x80",
}  # fmt: skip


@pytest.mark.parametrize(
    "question",
    [question for question in DOCTORS_QUESTIONS if question.reads is not Reads.EVERYTHING],
    ids=lambda question: question.name,
)
def test_the_doctor_reads_a_range_by_its_index(question: Question, mix: Mix) -> None:
    [(first,)] = mix.connection.execute("SELECT min(id) FROM awa.jobs_hot").fetchall()
    bounds = {"after_id": first + 1_000, "last_id": first + 1_500}
    text = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statement(f"doctor/{question.name}")
    [(plans,)] = mix.connection.execute(text, {**DOCTORS_VALUES, **bounds}).fetchall()

    def read(node: dict[str, object]) -> Iterator[tuple[str, float]]:
        if node.get("Relation Name") in ("jobs_hot", "scheduled_jobs", "job_unique_claims"):
            rows = float(str(node["Actual Rows"])) + float(str(node.get("Rows Removed by Filter", 0)))
            yield str(node.get("Index Name")), rows
        for child in node.get("Plans", []):  # type: ignore[attr-defined]
            yield from read(child)

    found = list(read(plans[0]["Plan"]))
    assert {index for index, _ in found} <= DOCTORS_INDEXES[question.reads]
    if question.reads is Reads.JOBS:
        assert max(rows for _, rows in found) == 500
