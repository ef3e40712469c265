"""The view under raw SQL that is large, odd or forbidden, and the cancel of very many jobs.

Its races are in tests/concurrency/test_view_races.py.
"""

from __future__ import annotations

import statistics
import threading
import time
import tracemalloc

import psycopg
import pytest

from awa_django import operations
from awa_django.operations import BATCH
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.finalize import complete
from awa_django.storage.promote import promote
from awa_django.storage.rows import Completion
from tests.conftest import Connect
from tests.factories import insert_job, reload_job
from tests.fault_report import Observe
from tests.worker_fixtures import Database


def generated(count: int, table: str = "awa.jobs") -> str:
    """Half of them due, half for later."""
    return (
        f"INSERT INTO {table} (kind, args, run_at) "
        "SELECT 'tests.many', jsonb_build_object('n', n), "
        "CASE WHEN mod(n, 2) = 0 THEN now() ELSE now() + interval '1 day' END "
        f"FROM generate_series(1, {count}) AS n"
    )


IDENTITY = (
    "id = id + 1",
    "kind = 'other'",
    "unique_key = '\\x000102030405060708090a0b0c0d0e0f'",
    "unique_states = B'11111111'",
    "run_lease = run_lease - 1",
    "run_lease = run_lease + 1",
    "created_at = now()",
)


@pytest.mark.parametrize("state", ["available", "running", "scheduled", "failed"])
@pytest.mark.fault(
    "F70", injected="UPDATE awa.jobs SET id, kind, unique_key, unique_states, run_lease, created_at"
)
def test_identity_of_a_job_cannot_be_changed(state: str, database: Database, observe: Observe) -> None:
    job_id = insert_job(state, created_at="2024-01-01 00:00+00")
    before = database.job(job_id)
    for assignment in IDENTITY:
        with pytest.raises(psycopg.errors.CheckViolation, match="cannot change"):
            database.connection.execute(f"UPDATE awa.jobs SET {assignment} WHERE id = {job_id}".encode())
    assert database.job(job_id) == before
    observe(f"{len(IDENTITY)} changes of a job that is {state}: each refused")


@pytest.mark.fault("F71", injected="COPY into the view, 5,000 rows")
def test_copy_into_the_view(database: Database, observe: Observe) -> None:
    started = time.monotonic()
    with (
        database.connection.cursor() as cursor,
        cursor.copy("COPY awa.jobs (kind, queue) FROM STDIN") as copy,
    ):
        for number in range(5_000):
            copy.write_row((f"tests.kind{number % 7}", "bulk"))
    took = time.monotonic() - started
    assert database.states() == {"available": 5_000}
    assert (
        database.value("SELECT count(DISTINCT id) FROM awa.jobs_hot WHERE args = '{}' AND priority = 2")
        == 5_000
    )
    observe(f"5,000 rows in {took:.1f} s")


@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.fault("F71", injected="INSERT ... SELECT of 4,000 and 100,000 rows with RETURNING")
def test_insert_select_with_returning(count: int, database: Database, observe: Observe) -> None:
    started = time.monotonic()
    rows = database.rows(generated(count) + " RETURNING id, state::text")
    took = time.monotonic() - started
    assert len({job_id for job_id, _ in rows}) == count
    assert {state for _, state in rows} == {"available", "scheduled"}
    assert database.states() == {"available": count // 2, "scheduled": count // 2}
    assert set(rows) == set(database.rows("SELECT id, state::text FROM awa.jobs"))
    observe(f"{count:,} rows in {took:.1f} s, RETURNING says where each is")


UNIQUE = "kind, unique_key, unique_states) VALUES ('k', '\\x000102030405060708090a0b0c0d0e0f', B'11101001')"


@pytest.mark.fault("F71", injected="INSERT ... ON CONFLICT through the view")
def test_on_conflict_is_refused_or_does_not_hide_a_violation(database: Database, observe: Observe) -> None:
    database.connection.execute(f"INSERT INTO awa.jobs ({UNIQUE}".encode())
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.connection.execute(f"INSERT INTO awa.jobs ({UNIQUE} ON CONFLICT DO NOTHING".encode())
    for target in ("(id) DO NOTHING", "(unique_key) DO NOTHING", "(id) DO UPDATE SET priority = 1"):
        with pytest.raises(psycopg.Error, match="no unique or exclusion constraint"):
            database.connection.execute(f"INSERT INTO awa.jobs ({UNIQUE} ON CONFLICT {target}".encode())
    assert database.states() == {"available": 1}
    observe("DO NOTHING does not swallow the conflict; a target is refused by PostgreSQL; one job remains")


@pytest.mark.fault("F71", injected="MERGE into the view")
def test_merge_is_refused_or_true(database: Database, observe: Observe) -> None:
    job_id = insert_job()
    merge = (
        f"MERGE INTO awa.jobs AS job USING (VALUES ({job_id}), (0)) AS wanted (id) ON job.id = wanted.id "
        "WHEN MATCHED THEN UPDATE SET priority = 4 WHEN NOT MATCHED THEN INSERT (kind) VALUES ('merged')"
    )
    if database.connection.info.server_version < 170_000:
        with pytest.raises(psycopg.Error, match=r"cannot execute MERGE|MERGE is not supported"):
            database.connection.execute(merge.encode())
        assert database.states() == {"available": 1}
        observe("before PostgreSQL 17: refused")
        return
    assert database.connection.execute(merge.encode()).rowcount == 2
    assert reload_job(job_id).priority == 4
    assert database.value("SELECT count(*) FROM awa.jobs WHERE kind = 'merged'") == 1
    observe("an update and an insert, counted as two")


@pytest.mark.fault(
    "F68", injected="SELECT ... FOR UPDATE SKIP LOCKED through the view as somebody's own queue"
)
def test_for_update_through_the_view_is_no_claim(
    database: Database, connect: Connect, observe: Observe
) -> None:
    """Two who lock through the view get the same row: the page says so, and the model refuses."""
    job_id = insert_job()
    seen = []
    for session in (connect(autocommit=False), connect(autocommit=False)):
        seen.append(session.execute("SELECT id FROM awa.jobs FOR UPDATE SKIP LOCKED").fetchall())
    assert seen == [[(job_id,)], [(job_id,)]]
    with pytest.raises(psycopg.errors.CheckViolation, match="cannot change"):
        database.connection.execute("UPDATE awa.jobs SET state = 'running' WHERE id = %s", [job_id])
    observe("both sessions are given the row, none can make it running")


def fill(database: Database, count: int) -> None:
    """Straight into the tables: the view would take a millisecond a row."""
    database.connection.execute(
        generated(count, "awa.jobs_hot").replace("now() + interval '1 day'", "now()").encode()
    )
    database.connection.execute(
        "INSERT INTO awa.scheduled_jobs (kind, queue, tags, run_at) "
        "SELECT 'tests.many', 'default', '{spring}', now() + interval '1 day' FROM generate_series(1, %s)",
        [count],
    )


@pytest.mark.measures
@pytest.mark.parametrize(
    "count", [10_000, pytest.param(500_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.fault(
    "F73", injected="cancel of 20,000 and of 1,000,000 jobs, half of them deferred, beside claims"
)
def test_cancel_of_very_many_jobs_leaves_others_in_peace(
    count: int, database: Database, connect: Connect, observe: Observe
) -> None:
    fill(database, count)
    others = [insert_job(queue="others") for _ in range(300)]
    times: list[float] = []
    done: list[int] = []
    stop = threading.Event()
    session = connect()

    def work() -> None:
        """Somebody else's jobs, one at a time, all the while."""
        request = ClaimRequest(limits={"others": 1}, total=1, worker="w/1")
        while not stop.is_set() and len(done) < len(others):
            started = time.monotonic()
            jobs = claim(session, request)
            complete(session, [Completion(job.key) for job in jobs])
            promote(session, batch=10)
            times.append(time.monotonic() - started)
            done.extend(job.id for job in jobs)

    worker = threading.Thread(target=work)
    tracemalloc.start()
    worker.start()
    started = time.monotonic()
    seen: list[int] = []
    try:
        cancelled = operations.cancel_matching(kind="tests.many", by="ann", on_batch=seen.append)
    finally:
        took = time.monotonic() - started
        stop.set()
        worker.join(30)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert cancelled == 2 * count == seen[-1]
    assert seen == sorted(seen)
    assert max(later - earlier for earlier, later in zip([0, *seen], seen, strict=False)) <= BATCH
    assert (
        database.value("SELECT count(*) FROM awa.jobs WHERE kind = 'tests.many' AND state = 'cancelled'")
        == 2 * count
    )
    assert statistics.median(times) < 0.5  # a machine that stands still makes one of them long
    assert peak < 20_000_000
    assert done
    observe(
        f"{cancelled:,} jobs in {took:.1f} s, {len(seen)} transactions; meanwhile a claim and completion "
        f"of others took {max(times) * 1000:.0f} ms at most ({len(done)} done); {peak / 1e6:.1f} MB at most"
    )


class Broken(Exception):
    pass


@pytest.mark.fault("F73", injected="a cancel of many jobs that breaks off in its middle, and is called again")
def test_cancel_that_broke_off_goes_on(database: Database, observe: Observe) -> None:
    fill(database, 3_000)

    def break_off(count: int) -> None:
        if count >= 2 * BATCH:
            raise Broken

    with pytest.raises(Broken):
        operations.cancel_matching(kind="tests.many", on_batch=break_off)
    assert database.states()["cancelled"] == 2 * BATCH
    assert operations.cancel_matching(kind="tests.many") == 6_000 - 2 * BATCH
    assert database.states() == {"cancelled": 6_000}
    observe(f"{2 * BATCH:,} were done and stay so, the second call did the other {6_000 - 2 * BATCH:,}")


def test_cancel_matching_takes_what_matches_and_no_more(database: Database) -> None:
    by_queue = [insert_job(queue="q"), insert_job("running", queue="q"), insert_job("scheduled", queue="q")]
    by_tag = [insert_job(tags=["a", "b"]), insert_job("retryable", tags=["b", "a", "c"])]
    others = [insert_job(tags=["a"]), insert_job("completed", queue="q"), insert_job(kind="x")]
    before = [reload_job(job_id) for job_id in others]
    assert operations.cancel_matching(queue="q", kind="other") == 0
    assert operations.cancel_matching(queue="q") == 3
    assert operations.cancel_matching(tags=["a", "b"]) == 2
    assert all(reload_job(job_id).state == "cancelled" for job_id in by_queue + by_tag)
    assert [reload_job(job_id) for job_id in others] == before
    assert operations.cancel_matching(kind="x", reason="no more", by="ann") == 1
    assert operations.cancel_matching(kind="x") == 0
    with pytest.raises(ValueError, match="does not cancel everything"):
        operations.cancel_matching()


def test_cancel_matching_finds_what_moves_behind_it(
    database: Database, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promoted after the hot table was looked through; jobs enqueued meanwhile are left."""
    job_id = insert_job("scheduled", run_at="2020-01-01 00:00+00")
    insert_job()
    new: list[int] = []

    def on_batch(_: int) -> None:
        if not new:
            promote(database.connection, batch=10)
            new.append(insert_job())

    assert operations.cancel_matching(kind="tests.job", on_batch=on_batch) == 2
    assert reload_job(job_id).state == "cancelled"
    assert reload_job(new[0]).state == "available"
