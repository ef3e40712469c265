"""Retention, dead rows and large tables: bounded work, and claims that stay quick."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from awa_django import doctor
from awa_django.conf import Retention
from awa_django.storage.catalogue import catalogue_recent_kinds
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.finalize import complete
from awa_django.storage.promote import promote
from awa_django.storage.rows import ClaimedJob, Completion
from awa_django.storage.vacuum import HOT, vacuum
from awa_django.worker.cursor import ClaimCursor
from awa_django.worker.database import Session
from awa_django.worker.pruner import Pruner
from tests.conftest import Connect, empty_queue_tables
from tests.fault_report import Observe
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database

Postgres = psycopg.Connection[Any]


def best_of(count: int, action: Callable[[], object]) -> float:
    """The shortest time of an action, in milliseconds: what it costs where nobody else is in its way."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def claim_ten(session: Postgres, queue: str = "measured") -> Callable[[], object]:
    """Ten jobs are claimed, and the claim is rolled back."""
    request = ClaimRequest(limits={queue: 10}, total=10, worker="w")

    def action() -> None:
        with session.transaction(force_rollback=True):
            assert len(claim(session, request)) == 10

    return action


def available(database: Database, count: int, queue: str = "measured") -> None:
    database.connection.execute(
        "INSERT INTO awa.jobs_hot (kind, queue) SELECT 'k', %s FROM generate_series(1, %s)", [queue, count]
    )


@pytest.mark.fault("F94", injected="two writers of the catalogue at once; one dies before its commit")
def test_catalogue_converges_whoever_writes_it(plain: Database, connect: Connect, observe: Observe) -> None:
    plain.connection.execute(
        "INSERT INTO awa.jobs_hot (kind) SELECT 'k' || mod(n, 50) FROM generate_series(1, 500) AS n"
    )
    dying = connect(autocommit=False)
    catalogue_recent_kinds(dying, window=5000)
    dying.rollback()
    writers = [
        threading.Thread(target=catalogue_recent_kinds, args=(connect(),), kwargs={"window": 5000})
        for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert plain.value("SELECT count(*) FROM awa.job_kinds") == 50
    assert [found.name for found in doctor.diagnose() if found.invariant == "I36"] == []
    observe("50 kinds of 500 jobs, each once, after a rollback and 4 writers at once")


@pytest.fixture
def make_session() -> Iterator[Callable[[], Session]]:
    made = []

    def make() -> Session:
        made.append(Session("awa-test-prune", limit=600))
        return made[-1]

    yield make
    for session in made:
        session.close()


@pytest.mark.measures
@pytest.mark.parametrize(
    "count", [20_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.fault(
    "F95", injected="pruning of 20,000 and 1,000,000 ended jobs of 3 retentions, which then change"
)
def test_pruning_is_exact_and_lets_others_work(
    count: int,
    plain: Database,
    connect: Connect,
    make_session: Callable[[], Session],
    observe: Observe,
) -> None:
    plain.connection.execute(
        "INSERT INTO awa.jobs_hot (kind, queue, state, finalized_at) "
        "SELECT 'k', (ARRAY['mail', 'bulk', 'other'])[1 + mod(n, 3)], 'completed', "
        "now() - make_interval(hours => mod(n, 10), mins => 30) FROM generate_series(1, %s) AS n",
        [count],
    )
    plain.connection.execute("ANALYZE awa.jobs_hot")
    available(plain, 400, "work")
    hour = timedelta(hours=1)
    retention = Retention(
        by_state={"completed": 4 * hour, "failed": hour, "cancelled": hour},
        by_queue={"mail": {"completed": hour}, "bulk": {"completed": timedelta(0)}},
    )
    expected = (
        "SELECT count(*) FROM awa.jobs_hot WHERE state = 'completed' AND finalized_at > now() - "
        "CASE queue WHEN 'mail' THEN interval '1 hour' WHEN 'bulk' THEN interval '0' ELSE %s END"
    )
    session = make_session()
    pruner = Pruner(session, AtWill(session), interval=timedelta(seconds=1), retention=retention)
    other, times, stop = connect(), list[float](), threading.Event()

    def work() -> None:
        request = ClaimRequest(limits={"work": 1}, total=1, worker="w")
        while not stop.is_set():
            started = time.monotonic()
            jobs = claim(other, request)
            complete(other, [Completion(job.key) for job in jobs])
            times.append(time.monotonic() - started)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        started = time.monotonic()
        pruner.tick()
        took = time.monotonic() - started
    finally:
        stop.set()
        worker.join(30)
    other.execute("DELETE FROM awa.jobs_hot WHERE queue = 'work'")
    kept = plain.value("SELECT count(*) FROM awa.jobs_hot")
    assert kept == plain.value(expected, 4 * hour)
    # The setting is changed, and the worker started again.
    changed = Retention(by_state={**retention.by_state, "completed": 2 * hour}, by_queue=retention.by_queue)
    Pruner(session, AtWill(session), interval=timedelta(seconds=1), retention=changed).tick()
    assert plain.value("SELECT count(*) FROM awa.jobs_hot") == plain.value(expected, 2 * hour) < kept
    assert statistics.median(times) < 0.5  # a machine that stands still makes one of them long
    observe(
        f"{count - kept:,} of {count:,} deleted in {took:.1f} s ({(count - kept) / took:,.0f}/s), exactly "
        f"those; a claim and completion beside it took {max(times) * 1000:.0f} ms at most"
    )


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.fault("F96", injected="autovacuum off, 60,000 jobs through the hot table")
@pytest.mark.fault("U49", injected="60,000 and 300,000 jobs beside an idle REPEATABLE READ transaction")
@pytest.mark.parametrize(
    ("pinned", "count"),
    [(False, 60_000), (True, 60_000), (True, 300_000)],
    ids=["autovacuum off", "pinned snapshot", "pinned snapshot, many"],
)
def test_claims_over_dead_rows_stay_usable_and_recover(
    pinned: bool,
    count: int,
    plain: Database,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    observe: Observe,
) -> None:
    plain.connection.execute("ALTER TABLE awa.jobs_hot SET (autovacuum_enabled = off)")
    session, reader, cursor = connect(), connect(autocommit=False), ClaimCursor()
    request = ClaimRequest(limits={"default": 500}, total=500, worker="w")

    def run(count: int, claim: Callable[..., list[ClaimedJob]] = cursor.claim) -> float:
        """Enqueue and run so many, 500 at a time; jobs a second."""
        started = time.monotonic()
        for _ in range(0, count, 500):
            plain.connection.execute(
                "INSERT INTO awa.jobs_hot (kind) SELECT 'k' FROM generate_series(1, 500)"
            )
            jobs = claim(session, request)
            assert len(jobs) == 500
            complete(session, [Completion(job.key) for job in jobs])
        return count / (time.monotonic() - started)

    try:
        vacuum(plain.connection, HOT)
        before = statistics.median(run(5_000) for _ in range(3))
        if pinned:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM awa.jobs_hot")
        run(count - 15_000)
        rounds = [(run(5_000), run(2_500, claim)) for _ in range(4)]
        laden, from_the_head = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        if pinned:
            monkeypatch.setattr(doctor, "PINNED_AFTER", timedelta(0))
            found = {finding.name: finding for finding in doctor.diagnose()}
            assert str(reader.info.backend_pid) in " ".join(found["pinned_snapshots"].examples)
        reader.rollback()
        vacuum(plain.connection, HOT)
        after = statistics.median(run(5_000) for _ in range(3))
    finally:
        plain.connection.execute("ALTER TABLE awa.jobs_hot RESET (autovacuum_enabled)")
    assert laden > before / 5
    assert after > before / 5
    if count > 100_000:
        assert laden > from_the_head * 1.4
    observe(
        f"{before:,.0f} jobs/s, {laden:,.0f}/s over {count - 15_000:,} dead rows "
        f"({from_the_head:,.0f}/s where each claim begins at the head), {after:,.0f}/s after a vacuum"
    )


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.fault(
    "U05", injected="500,000 and 2 million ended rows in the hot table beside 500,000 and 5 million deferred"
)
@pytest.mark.fault("U07", injected="50,000 and a million due rows of a queue that nobody serves")
@pytest.mark.parametrize(
    ("ended", "deferred", "unserved"),
    [(500_000, 500_000, 50_000), (2_000_000, 5_000_000, 1_000_000)],
    ids=["small", "full size"],
)
def test_claim_and_promotion_do_not_feel_the_other_rows(
    ended: int,
    deferred: int,
    unserved: int,
    plain: Database,
    connect: Connect,
    database_url: str,
    observe: Observe,
) -> None:
    session = connect()
    available(plain, 200)
    empty = best_of(30, claim_ten(session))
    plain.connection.execute(
        "INSERT INTO awa.jobs_hot (kind, state, finalized_at) "
        "SELECT 'k', 'completed', now() FROM generate_series(1, %s)",
        [ended],
    )
    plain.connection.execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'k', now() + interval '1 hour' + interval '30 days' * n / %s "
        "FROM generate_series(1, %s) AS n",
        [deferred, deferred],
    )
    laden = best_of(30, claim_ten(session))
    plain.connection.execute(
        "INSERT INTO awa.scheduled_jobs (kind, queue, run_at) "
        "SELECT 'k', 'measured', now() FROM generate_series(1, 5000)"
    )

    def promote_five_hundred() -> None:
        with session.transaction(force_rollback=True):
            assert sum(promote(session, batch=500).values()) == 500

    moved = best_of(5, promote_five_hundred)
    plain.connection.execute("DELETE FROM awa.scheduled_jobs WHERE queue = 'measured'")
    available(plain, unserved, "archive")
    beside = best_of(30, claim_ten(session))
    empty_queue_tables(database_url)
    assert laden < empty * 1.5 + 1
    assert beside < empty * 1.5 + 1
    assert moved < 100
    observe(
        f"claim of 10: {empty:.1f} ms; with {ended:,} ended and {deferred:,} deferred rows {laden:.1f} ms, "
        f"beside {unserved:,} unserved {beside:.1f} ms; promotion of 500 without ANALYZE: {moved:.0f} ms"
    )


@pytest.mark.measures
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.fault("U56", injected="the same 10,000 jobs in 1, 4, 16 and 64 queues, one claimer")
def test_number_of_queues_costs_little(plain: Database, connect: Connect, observe: Observe) -> None:
    session = connect()
    best: dict[int, float] = dict.fromkeys((1, 4, 16, 64), 0.0)
    for number in range(20):
        if number >= 3 and min(best.values()) > best[1] * 0.8:
            break  # a busy machine makes any of them slow, none fast: it gets some more tries
        for count, rate in best.items():
            plain.connection.execute("TRUNCATE awa.jobs_hot")
            plain.connection.execute(
                "INSERT INTO awa.jobs_hot (kind, queue) "
                "SELECT 'k', 'q' || mod(n, %s) FROM generate_series(1, 10000) AS n",
                [count],
            )
            plain.connection.execute("VACUUM ANALYZE awa.jobs_hot")
            limits = dict.fromkeys((f"q{queue}" for queue in range(count)), 500)
            request = ClaimRequest(limits=limits, total=500, worker="w")
            started = time.monotonic()
            while jobs := claim(session, request):
                complete(session, [Completion(job.key) for job in jobs])
            best[count] = max(rate, 10_000 / (time.monotonic() - started))
    assert min(best.values()) > best[1] * 0.8
    observe(", ".join(f"{count} queues: {rate:,.0f} jobs/s" for count, rate in best.items()))
