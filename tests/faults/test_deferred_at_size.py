"""Ten million deferred rows, and statistics that know of none: what promotion and claims cost beside them.

On two servers of their own, one with an empty deferred table: the same claim is timed on both in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from awa_django.storage._sql import statement
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.promote import promote
from tests.clusters import cluster
from tests.fault_report import Observe

Postgres = psycopg.Connection[Any]

ROWS = 5_000_000
SECONDS = 20
DUE_A_SECOND = 500
REQUEST = ClaimRequest(limits={"measured": 10}, total=10, worker="w")


@pytest.fixture
def servers() -> Iterator[tuple[Postgres, Postgres]]:
    """Connections to two servers with 1,000 waiting jobs each, whose statistics stay as they are."""
    with (
        cluster(autovacuum="off") as one,
        cluster(autovacuum="off", max_wal_size="8GB") as two,
        one.connect() as empty,
        two.connect() as laden,
    ):
        for session in (empty, laden):
            session.execute(
                "INSERT INTO awa.jobs_hot (kind, queue) SELECT 'k', 'measured' FROM generate_series(1, 1000)"
            )
            session.execute("VACUUM ANALYZE")
        yield empty, laden


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.fault(
    "U04",
    injected="5 million deferred rows over 30 days, 5 million more by COPY, no ANALYZE, 500 due a second",
)
def test_promotion_and_claims_beside_ten_million_deferred_rows(
    servers: tuple[Postgres, Postgres], observe: Observe
) -> None:
    empty, laden = servers
    laden.execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'k', now() + interval '1 hour' + interval '30 days' * n / %s "
        "FROM generate_series(1, %s) AS n",
        [ROWS, ROWS],
    )
    first = promote_and_claim(empty, laden)
    copy_in(laden, ROWS)
    second = promote_and_claim(empty, laden)
    observe(f"behind {ROWS:,}: {first}; behind {2 * ROWS:,}: {second}")


def copy_in(session: Postgres, count: int) -> None:
    """So many rows over 30 days from an hour from now, as a bulk load writes them."""
    [[start]] = session.execute("SELECT extract(epoch FROM now() + interval '1 hour')::float8").fetchall()
    step = 30 * 86_400 / count
    with session.cursor() as cursor, cursor.copy("COPY awa.scheduled_jobs (kind, run_at) FROM STDIN") as copy:
        for number in range(count):
            copy.write_row(("k", datetime.fromtimestamp(start + number * step, UTC)))


def promote_and_claim(empty: Postgres, laden: Postgres) -> str:
    """Promote what becomes due for some seconds, and claim on both servers meanwhile; says what it took."""
    laden.execute(
        "INSERT INTO awa.scheduled_jobs (kind, queue, run_at) "
        "SELECT 'k', 'due', clock_timestamp() + interval '1 second' * n / %s "
        "FROM generate_series(1, %s) AS n",
        [DUE_A_SECOND, SECONDS * DUE_A_SECOND],
    )
    assert indexes_of_promotion(laden) == {"scheduled_jobs_due"}
    moved: list[int] = []
    promotions: list[float] = []
    claims: dict[Postgres, list[float]] = {empty: [], laden: []}
    began = time.monotonic()
    while sum(moved) < SECONDS * DUE_A_SECOND:
        assert time.monotonic() < began + 3 * SECONDS, sum(moved)
        for session, times in claims.items():
            started = time.perf_counter()
            with session.transaction(force_rollback=True):
                assert len(claim(session, REQUEST)) == 10
            times.append(time.perf_counter() - started)
        if time.monotonic() < began + len(moved) + 1:
            continue  # a batch a second
        started = time.perf_counter()
        with laden.transaction():
            moved.append(sum(promote(laden, batch=DUE_A_SECOND).values()))
        promotions.append(time.perf_counter() - started)
    promotion = 1000 * statistics.median(promotions)
    without, beside = (1000 * statistics.median(times) for times in claims.values())
    assert promotion < 20
    assert beside < without * 1.1
    return (
        f"{len(promotions)} promotions of {statistics.median(moved):.0f}, median {promotion:.1f} ms, "
        f"longest {1000 * max(promotions):.0f} ms; claim of 10 {beside:.2f} ms, "
        f"on the server without deferred rows {without:.2f} ms"
    )


def indexes_of_promotion(session: Postgres) -> set[str]:
    with session.transaction(force_rollback=True):
        session.execute(statement("plan_in_order"))
        row = session.execute(
            "EXPLAIN (FORMAT JSON) " + statement("promote"), {"batch": 500, "since": None}
        ).fetchone()
    assert row is not None
    return {node["Index Name"] for node in nodes_of(row[0][0]["Plan"]) if "Index Name" in node}


def nodes_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from nodes_of(below)
