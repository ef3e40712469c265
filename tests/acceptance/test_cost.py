"""What a job costs its database, by the server's own counters: the same on every machine.

On a server of their own, where nobody else writes: no full-page images, no autovacuum. Measured on
PostgreSQL 15 and 18, in the whole life of a job: 1,060 bytes of WAL (1,170 with a fillfactor of 100), two
dead row versions, 0.009 statements (0.013 on a machine with ten times too much to do; 0.11 when claims
took 20 at most).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from awa_django.storage._sql import statement
from tests.clusters import PROJECT_DIR, Cluster, cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.xdist_group("cost")]

JOBS = 20_000
ENQUEUE = f"""
import django
django.setup()
from tests import handlers
handlers.nothing.enqueue_many({{"number": number}} for number in range({JOBS}))
"""
LOGGED = re.compile(r" LOG:  (?:statement|execute [^:]*): ")
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True)
class Counters:
    """What the server has counted so far."""

    wal: int
    transactions: int
    statements: int
    inserted: int
    updated: int
    dead: int

    @classmethod
    def of(cls, server: Cluster) -> Counters:
        with server.connect() as connection:
            connection.execute("SET log_statement = 'none'")
            # A session that ends counts what it did before it is gone, which may be later than its client.
            wait_until(lambda: connection.execute(OTHERS).fetchone() == (0,), interval=0.1)
            row = connection.execute(
                """
                SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, base.xact_commit,
                    hot.n_tup_ins, hot.n_tup_upd, hot.n_tup_upd + hot.n_tup_del
                FROM pg_stat_database AS base, pg_stat_user_tables AS hot
                WHERE base.datname = current_database()
                  AND hot.relid = 'awa.jobs_hot'::regclass
                """
            ).fetchone()
        assert row is not None
        wal, transactions, *rows = row
        return cls(wal, transactions, len(LOGGED.findall(server.log_text())), *rows)


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with cluster(log_statement="all", full_page_writes="off", autovacuum="off") as made:
        yield made


def run(server: Cluster, *arguments: str) -> str:
    """What it said."""
    environment = {
        **os.environ,
        "DATABASE_URL": server.url,
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=PROJECT_DIR, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_job_from_bulk_enqueue_to_its_end(server: Cluster) -> None:
    before = Counters.of(server)
    run(server, "-c", ENQUEUE)
    enqueued = Counters.of(server)
    told = run(server, "manage.py", "awa_worker", "--drain")
    after = Counters.of(server)
    # A machine that stands still for seconds makes a worker give back what it holds, to be claimed again.
    released = re.search(r"(\d+) released", told)
    assert released is not None
    claims = JOBS + int(released[1])

    assert after.inserted - before.inserted == JOBS
    # Once by each claim, and once by how that ended.
    assert after.updated - enqueued.updated == 2 * claims
    assert after.dead - before.dead == 2 * claims
    assert (after.wal - before.wal) / claims < 1_090
    # Of these, some 60 are those of a worker's start and end.
    assert (after.statements - enqueued.statements) / claims < 0.02
    assert (after.transactions - enqueued.transactions) / claims < 0.02


def test_heartbeats_touch_no_index(server: Cluster) -> None:
    """Half of each page is left free, so each new version is on the page of the old one."""
    count = 5_000
    with server.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "INSERT INTO awa.jobs_hot (kind, state, attempt, run_lease, attempted_at, heartbeat_at, worker) "
            "SELECT 'tests.beaten', 'running', 1, 1, now(), now(), 'host:1:a/1' FROM generate_series(1, %s)",
            [count],
        )
        ids = [
            row[0]
            for row in connection.execute("SELECT id FROM awa.jobs_hot WHERE state = 'running' ORDER BY id")
        ]
        connection.execute(statement("heartbeat"), {"job_ids": ids, "run_leases": [1] * count})
        row = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
            "WHERE relid = 'awa.jobs_hot'::regclass"
        ).fetchone()
    assert row is not None
    updated, hot = row
    assert updated == count
    assert hot / updated > 0.95
