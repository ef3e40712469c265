"""The view's triggers, first run over empty tables and then over full ones, in one session."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Connect

pytestmark = pytest.mark.usefixtures("clean_queue")

ROWS = 2_000


def scans(session: psycopg.Connection[Any]) -> tuple[int, int]:
    """How often both tables were scanned, and how often an index that is no primary key was.

    In the transaction that is open: what other sessions have done is added to the tables' counts late.
    """
    row = session.execute(
        """
        SELECT
            (SELECT sum(pg_stat_get_xact_numscans(relid)) FROM pg_stat_user_tables
             WHERE schemaname = 'awa' AND relname IN ('jobs_hot', 'scheduled_jobs', 'job_unique_claims')),
            (SELECT sum(pg_stat_get_xact_numscans(indexrelid)) FROM pg_stat_user_indexes
             WHERE schemaname = 'awa' AND relname IN ('jobs_hot', 'scheduled_jobs')
               AND indexrelname NOT LIKE '%_pkey')
        """
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def test_triggers_planned_over_empty_tables_use_the_primary_keys_of_full_ones(connect: Connect) -> None:
    session = connect()
    tables = ("awa.jobs_hot", "awa.scheduled_jobs")
    for table in tables:
        session.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    try:
        session.execute("VACUUM (ANALYZE) awa.jobs_hot, awa.scheduled_jobs, awa.job_unique_claims")
        # Every branch of the triggers, often enough that their generic plans are made now.
        for _ in range(8):
            session.execute("INSERT INTO awa.jobs (kind) VALUES ('k')")
            session.execute("UPDATE awa.jobs SET priority = 1")
            session.execute("UPDATE awa.jobs SET run_at = now() + '1 hour'")
            session.execute("UPDATE awa.jobs SET priority = 2")
            session.execute("UPDATE awa.jobs SET state = 'available', run_at = now()")
            session.execute("DELETE FROM awa.jobs")
        session.execute(
            "INSERT INTO awa.jobs (kind, unique_key, unique_states) "
            "SELECT 'k', decode(md5(n::text), 'hex'), B'11101001' FROM generate_series(1, %s) AS n",
            [ROWS],
        )
        for statement in (
            "UPDATE awa.jobs SET priority = 3",
            "UPDATE awa.jobs SET run_at = now() + '1 hour'",
            "UPDATE awa.jobs SET priority = 4",
            "UPDATE awa.jobs SET state = 'available', run_at = now()",
            "DELETE FROM awa.jobs",
        ):
            with session.transaction():
                scanned, searched = scans(session)
                assert session.execute(statement).rowcount == ROWS
                scanned_since, searched_since = scans(session)
            # The statement itself reads each table once.
            assert scanned_since - scanned <= 2, statement
            assert searched_since - searched <= 2, statement
    finally:
        for table in tables:
            session.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
