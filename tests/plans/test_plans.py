"""EXPLAIN of the worker's statements over a stated mix of rows: each uses the indexes its header names.

The mix: in ``jobs_hot`` 50,000 completed, 5,000 available over three queues, 500 running and 500
failed; in ``scheduled_jobs`` 200,000 rows, of which 2,000 are due. Once with fresh statistics, and
once with some that were taken when the tables had just been drained; then there are 30,000 deferred
rows, whose due order is in an index still as tall as more rows made it, and the others are newly built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from awa_django.histogram import BOUNDS
from awa_django.storage._sql import fetch, statement

# One process: what fills the tables takes longer than the tests.
pytestmark = pytest.mark.xdist_group("plans")

QUEUES = ["default", "mail", "reports"]
KINDS = ["a.kind", "b.kind"]
# Statistics of tables that have pages and no rows: the planner then reckons with one row, however
# many pages there are later, and the height of an index decides. It never falls again by itself.
DRAIN_AND_ANALYZE = """
SAVEPOINT filled;
INSERT INTO awa.jobs_hot (kind) SELECT 'a.kind' FROM generate_series(1, 1000);
INSERT INTO awa.scheduled_jobs (kind, run_at)
SELECT 'a.kind', now() + number * interval '1 s' FROM generate_series(1, 150000) AS number;
ROLLBACK TO filled;
REINDEX INDEX awa.scheduled_jobs_kind_due;
REINDEX INDEX awa.scheduled_jobs_queue_due;
ANALYZE awa.jobs_hot, awa.scheduled_jobs;
"""
# A session remembers how tall it found an index: have it look again.
FORGET_HEIGHTS = """
ALTER INDEX awa.jobs_hot_pkey RESET (fillfactor);
ALTER INDEX awa.jobs_hot_claim RESET (fillfactor);
ALTER INDEX awa.jobs_hot_running RESET (fillfactor);
ALTER INDEX awa.jobs_hot_finalized RESET (fillfactor);
ALTER INDEX awa.jobs_hot_attention RESET (fillfactor);
ALTER INDEX awa.scheduled_jobs_pkey RESET (fillfactor);
ALTER INDEX awa.scheduled_jobs_due RESET (fillfactor);
ALTER INDEX awa.scheduled_jobs_kind_due RESET (fillfactor);
ALTER INDEX awa.scheduled_jobs_queue_due RESET (fillfactor);
"""
FILL = """
INSERT INTO awa.jobs_hot (kind, queue, state, attempt, run_lease, run_at, finalized_at, worker)
SELECT 'a.kind', 'default', 'completed', 1, 1, at.instant, at.instant, 'w/1'
FROM generate_series(1, 50000) AS number, LATERAL (SELECT now() - number * interval '1 s') AS at (instant);
INSERT INTO awa.jobs_hot (kind, queue, priority, run_at)
SELECT 'a.kind', (ARRAY['default', 'mail', 'reports'])[1 + number % 3], number % 4,
    now() - number * interval '1 s'
FROM generate_series(1, 5000) AS number;
INSERT INTO awa.jobs_hot (kind, queue, state, attempt, run_lease, heartbeat_at, attempted_at, worker)
SELECT 'a.kind', 'default', 'running', 1, 1, now(), now(), 'w/1'
FROM generate_series(1, 500);
INSERT INTO awa.jobs_hot (kind, queue, state, attempt, run_lease, finalized_at)
SELECT 'a.kind', 'default', 'failed', 1, 1, now()
FROM generate_series(1, 500);
"""
DEFER = """
INSERT INTO awa.scheduled_jobs (kind, queue, run_at)
SELECT (ARRAY['a.kind', 'b.kind'])[1 + number %% 2], (ARRAY['default', 'mail', 'reports'])[1 + number %% 3],
    now() + (number - 2000) * interval '1 s'
FROM generate_series(1, %s) AS number
"""
STATEMENTS = files("awa_django.storage") / "sql"
JOB_INDEX = re.compile(r"\b(?:jobs_hot|scheduled_jobs)_[a-z_]*[a-z]\b")
HOT, DEFERRED = "jobs_hot", "scheduled_jobs"
# jit_above_cost: the server would take seconds to compile what costs more.
DEAR = 100_000


@dataclass(frozen=True)
class Plan:
    """What a plan reads: tables and indexes by name, by which conditions, and what is scanned to the end."""

    tables: frozenset[str]
    indexes: frozenset[str]
    scanned: frozenset[str]
    nodes: frozenset[str]
    conditions: frozenset[str]
    cost: float


@dataclass
class Mix:
    """The filled tables, in a transaction that is never committed."""

    connection: psycopg.Connection[Any]
    running_ids: list[int]
    is_stale: bool

    def explain(self, name: str, params: dict[str, object]) -> Plan:
        row = self.connection.execute("EXPLAIN (FORMAT JSON) " + statement(name), params).fetchone()
        assert row is not None
        nodes = list(_nodes(row[0][0]["Plan"]))
        return Plan(
            tables=frozenset(node["Relation Name"] for node in nodes if "Relation Name" in node),
            indexes=frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
            scanned=frozenset(node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"),
            nodes=frozenset(node["Node Type"] for node in nodes),
            conditions=frozenset(node["Index Cond"] for node in nodes if "Index Cond" in node),
            cost=nodes[0]["Total Cost"],
        )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


@pytest.fixture(scope="module", params=["stale statistics", "fresh statistics"])
def mix(request: pytest.FixtureRequest, database_url: str) -> Iterator[Mix]:
    with psycopg.connect(database_url, prepare_threshold=None) as connection:
        is_stale = request.param == "stale statistics"
        if is_stale:
            connection.execute(DRAIN_AND_ANALYZE)
        connection.execute(FILL)
        connection.execute(DEFER, [30_000 if is_stale else 200_000])
        connection.execute(FORGET_HEIGHTS if is_stale else "ANALYZE awa.jobs_hot, awa.scheduled_jobs")
        running = connection.execute("SELECT id FROM awa.jobs_hot WHERE state = 'running' ORDER BY id")
        yield Mix(connection, [row[0] for row in running], is_stale)
        connection.rollback()


def run_params(ids: list[int], **more: object) -> dict[str, object]:
    arrays = {name: [value] * len(ids) for name, value in more.items()}
    return {"job_ids": ids, "run_leases": [1] * len(ids), "bounds": list(BOUNDS), **arrays}


RULES = {
    "states": ["completed", "failed", "cancelled", "completed"],
    "queues": [None, None, None, "mail"],
    "ages": [86400.0, 604800.0, 604800.0, 3600.0],
}
CLAIM = {
    "queues": QUEUES,
    "limits": [8, 8, 8],
    "total": 16,
    "share": 8,
    "worker": "w/1",
    "timeouts": '{"a.kind": 60}',
    "hold": 7.0,
    "excluded_kinds": [],
    "aging_kinds": ["b.kind"],
}

BATCHED: dict[str, dict[str, object]] = {
    "heartbeat": {},
    "lock_free_runs": {},
    "still_running": {},
    "progress": {"progress": "{}"},
    "complete": {"results": None},
    "complete_and_delete": {},
    "finish": {"states": "failed", "entries": "{}"},
    "release": {},
    "defer": {
        "states": "retryable",
        "delays": 5.0,
        "refunds": 0,
        "entries": "{}",
        "unknown_kinds": False,
        "aging": True,
    },
}


def check_indexes(name: str, plan: Plan) -> None:
    lines = (STATEMENTS / f"{name}.sql").read_text(encoding="utf-8").splitlines(True)
    header = "".join(line for line in lines if line.startswith("--"))
    named = set(JOB_INDEX.findall(header)) - {HOT, DEFERRED}
    assert {index for index in plan.indexes if JOB_INDEX.fullmatch(index)} == named
    assert not plan.scanned & {HOT, DEFERRED}
    assert plan.cost < DEAR


@pytest.mark.parametrize("count", [1, 100, 500])
@pytest.mark.parametrize("name", BATCHED)
def test_statement_on_runs_goes_by_the_primary_key_of_the_hot_table(mix: Mix, name: str, count: int) -> None:
    plan = mix.explain(name, run_params(mix.running_ids[:count], **BATCHED[name]))
    check_indexes(name, plan)
    # defer writes into the deferred table and reads nothing of it; what ends a run counts it.
    assert plan.tables - {"queue_stats_deltas"} == ({HOT, DEFERRED} if name == "defer" else {HOT})
    assert plan.indexes == {"jobs_hot_pkey"}


@pytest.mark.parametrize("limit", [1, 16, 500])
@pytest.mark.parametrize("excluded", [[], ["x.kind", "y.kind"]])
def test_claim_reads_the_head_of_each_queue(mix: Mix, limit: int, excluded: list[str]) -> None:
    params = {**CLAIM, "limits": [limit] * 3, "total": limit, "excluded_kinds": excluded}
    plan = mix.explain("claim", params)
    check_indexes("claim", plan)
    assert plan.tables == {HOT, "queue_meta"}
    assert "jobs_hot_claim" in plan.indexes
    # The first rows of an ordered index: nothing is sorted but the answer. The update goes to their places.
    assert {"Index Scan", "Tid Scan"} <= set(plan.nodes)


@pytest.mark.parametrize("limit", [1, 16, 500])
def test_claim_of_one_queue_reads_its_head(mix: Mix, limit: int) -> None:
    plan = mix.explain("claim_queue", {**CLAIM, "queue": QUEUES[0], "total": limit})
    check_indexes("claim_queue", plan)
    assert plan.tables == {HOT, "queue_meta"}
    assert {"Index Scan", "Tid Scan"} <= set(plan.nodes)
    assert "Hash Join" not in plan.nodes


@pytest.mark.parametrize("queues", [1, 3, 64])
@pytest.mark.parametrize("limit", [1, 500])
def test_claim_behind_places_begins_there(mix: Mix, limit: int, queues: int) -> None:
    names = [*QUEUES, *(f"q{number}" for number in range(61))][:queues]
    places = {
        "queues": names,
        "limits": [limit] * queues,
        "total": limit,
        "place_queues": names,
        "after_priorities": [2] * queues,
        "after_run_ats": ["2020-01-01T00:00Z"] * queues,
        "after_ids": [7] * queues,
        "last_priorities": [2] * queues,
    }
    plan = mix.explain("claim_behind", {**CLAIM, **places})
    check_indexes("claim_behind", plan)
    assert plan.tables == {HOT, "queue_meta"}
    assert any("ROW(priority, run_at, id) > ROW(" in condition for condition in plan.conditions)


def test_search_before_places_ends_at_them(mix: Mix) -> None:
    params: dict[str, object] = {
        "queue": QUEUES[0],
        "priorities": [1, 2],
        "run_ats": ["2020-01-01T00:00Z"] * 2,
        "ids": [7, 8],
        "since_run_ats": ["2019-01-01T00:00Z"] * 2,
        "since_ids": [5, 6],
        "after_priorities": [-99, 1, 2],
        "before_priorities": [1, 2, 103],
        "excluded_kinds": [],
    }
    with mix.connection.transaction(force_rollback=True):
        fetch(mix.connection, "plan_in_order")
        plan = mix.explain("left_behind", params)
    check_indexes("left_behind", plan)
    assert plan.tables == {HOT}
    # The columns with bounds stand behind equal ones: the scan begins and stops there.
    assert any(
        "(priority = place.priority) AND (ROW(run_at, id) > ROW(place.since_run_at, place.since_id)) "
        "AND (run_at <= LEAST(" in each
        for each in plan.conditions
    )
    assert "Sort" not in plan.nodes


@pytest.mark.parametrize("places", [1, 64])
def test_search_among_the_newest_walks_over_them_once(mix: Mix, places: int) -> None:
    params: dict[str, object] = {
        "newer_than": mix.running_ids[0],
        "queues": [*QUEUES, *(f"q{number}" for number in range(61))][:places],
        "priorities": [2] * places,
        "run_ats": ["2020-01-01T00:00Z"] * places,
        "ids": [7] * places,
        "excluded_kinds": [],
    }
    with mix.connection.transaction(force_rollback=True):
        fetch(mix.connection, "plan_by_index", is_local=True)
        plan = mix.explain("newest_left_behind", params)
    check_indexes("newest_left_behind", plan)
    assert plan.tables == {HOT}
    assert any("id > " in condition for condition in plan.conditions)


@pytest.mark.parametrize("since", [None, "2020-01-01T00:00Z"])
@pytest.mark.parametrize("batch", [1, 100, 2000])
def test_promotion_goes_by_the_due_index(mix: Mix, batch: int, since: str | None) -> None:
    with mix.connection.transaction(force_rollback=True):
        fetch(mix.connection, "plan_in_order")
        plan = mix.explain("promote", {"batch": batch, "since": since})
    check_indexes("promote", plan)
    assert plan.tables == {HOT, DEFERRED}


def test_nothing_is_compiled_because_sorts_and_scans_are_off(mix: Mix) -> None:
    with mix.connection.transaction(force_rollback=True):
        fetch(mix.connection, "plan_in_order")
        row = mix.connection.execute(
            "EXPLAIN (ANALYZE, FORMAT JSON) SELECT FROM awa.leaders ORDER BY holder"
        ).fetchone()
    assert row is not None
    assert "JIT" not in row[0][0]


OTHERS: dict[str, dict[str, object]] = {
    "claimable": CLAIM,
    "claim_one": {**CLAIM, "job_id": 1},
    "quarantine": {"job_id": 1, "entry": "{}"},
    "surrender": {
        "job_id": 1,
        "run_lease": 1,
        "state": "failed",
        "bit": 5,
        "entry": "{}",
        "bounds": list(BOUNDS),
    },
    "next_due": {"since": None},
    "lost_runs": {"stale_after": 90.0, "batch": 500},
    "runs_of_worker": {"workers": ["w/1", "w/2"], "min_age": 2.0},
    "prune": {
        "cursor": None,
        "min_age": 3600.0,
        "batch": 1000,
        "kinds": ["k"],
        "kind_ages": [3600.0],
        **RULES,
    },
    "catalogue_recent_kinds": {"window": 5000},
    "waiting_kinds": {"sample": 1000, "limit": 1000},
    "known_names": {"limit": 1000, "search": None},
}
# Seldom run, on the deferred table, whose every index holds the id and the due time: while the
# statistics call the table empty any of them may be read, and that is soon over.
SELDOM: dict[str, dict[str, object]] = {
    "due_ids": {"batch": 2000},
    "promote_one": {"job_id": 1},
    "supersede": {"job_id": 1, "entry": "{}"},
    "anything_due": {"queues": QUEUES, "kinds": KINDS},
    "find_job": {"job_id": 1},
    "why_job": {"job_id": 1},
}


@pytest.mark.parametrize("name", OTHERS)
def test_statement_uses_the_indexes_its_header_names(mix: Mix, name: str) -> None:
    check_indexes(name, mix.explain(name, OTHERS[name]))


@pytest.mark.parametrize("name", SELDOM)
def test_seldom_run_statement_uses_its_indexes_if_the_statistics_are_right(mix: Mix, name: str) -> None:
    check_seldom_run(mix, name, SELDOM[name])


@pytest.mark.parametrize("count", [1, 100, 500])
def test_settled_looks_ids_up_in_both_tables(mix: Mix, count: int) -> None:
    params = run_params(mix.running_ids[:count], gone_is_settled=True)
    check_seldom_run(mix, "settled", {**params, "worker": "w/1"})


def check_seldom_run(mix: Mix, name: str, params: dict[str, object]) -> None:
    plan = mix.explain(name, params)
    if mix.is_stale:
        assert plan.indexes
        assert not plan.scanned & {HOT, DEFERRED}
    else:
        check_indexes(name, plan)


def test_next_due_goes_on_at_an_instant_by_the_index(mix: Mix) -> None:
    with mix.connection.transaction(force_rollback=True):
        fetch(mix.connection, "plan_in_order")
        check_indexes("next_due", mix.explain("next_due", {"since": "2020-01-01T00:00Z"}))


def test_prune_goes_on_behind_its_cursor_by_the_index(mix: Mix) -> None:
    params = {**OTHERS["prune"], "cursor": "2020-01-01T00:00Z"}
    check_indexes("prune", mix.explain("prune", params))


def test_check_finds_a_scan(mix: Mix) -> None:
    """The check itself: a statement that scans is reported."""
    row = mix.connection.execute(
        "EXPLAIN (FORMAT JSON) SELECT FROM awa.jobs_hot WHERE attempt = 3"
    ).fetchone()
    assert row is not None
    assert [node["Node Type"] for node in _nodes(row[0][0]["Plan"])] == ["Seq Scan"]


WHY = {"queue": "default", "seen_within": 90.0, "priority": 2, "run_at": "2020-01-01T00:00Z", "job_id": 7}


@pytest.mark.parametrize("is_deferred", [False, True])
def test_what_is_before_a_job_is_counted_by_an_ordered_index(mix: Mix, is_deferred: bool) -> None:
    plan = mix.explain("why_queue", {**WHY, "is_deferred": is_deferred, "cap": 10_001})
    assert not plan.scanned & {HOT, DEFERRED}
    assert ("jobs_hot_claim" in plan.indexes) is not is_deferred
    assert "jobs_hot_running" in plan.indexes
    if is_deferred and not mix.is_stale:
        assert "scheduled_jobs_due" in plan.indexes
