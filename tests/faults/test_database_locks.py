"""Locks and limits of the server that come in the way of a worker's statements."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from awa_django.storage import operate
from tests import handlers
from tests.conftest import Connect
from tests.fault_report import Observe
from tests.sessions import deadlocks
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 10.0, "SWEEP_INTERVAL": 0.5}


@contextlib.contextmanager
def role_settings(database: Database, **settings: str) -> Iterator[None]:
    """What new sessions on the test database begin with."""
    name = database.value("SELECT quote_ident(current_database())")
    for setting, value in settings.items():
        database.connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    try:
        yield
    finally:
        for setting in settings:
            database.connection.execute(f"ALTER DATABASE {name} RESET {setting}")


@pytest.mark.parametrize("limits", [{}, {"statement_timeout": "400ms", "lock_timeout": "100ms"}])
@pytest.mark.fault(
    "F31", injected="a session locks 150 of 400 running rows for long; with and without server timeouts"
)
def test_locked_rows_do_not_stop_the_others(
    database: Database,
    connect: Connect,
    start_worker: StartWorker,
    tmp_path: Path,
    observe: Observe,
    limits: dict[str, str],
) -> None:
    connection.ensure_connection()  # it is older than the limits
    go_on = tmp_path / "go on"
    with role_settings(database, **limits):
        handlers.nothing_until_async.enqueue_many(
            [{"path": str(go_on), "number": number} for number in range(400)]
        )
        # No heartbeat passes the lock: what is slow here must not make the locked ones stale.
        worker = start_worker("--concurrency", "400", awa={**QUICK, "STALE_AFTER": 300.0})
        wait_until(lambda: database.states() == {"running": 400}, message=worker.text)
        with connect(autocommit=False) as holder:
            holder.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            holder.execute(  # in the order in which heartbeats lock
                "SELECT FROM awa.jobs_hot WHERE (args ->> 'number')::int % 8 IN (1, 4, 6) "
                "ORDER BY id FOR UPDATE"
            )
            go_on.touch()
            began = time.monotonic()
            wait_until(lambda: database.states().get("completed") == 250, message=worker.text)
            took = time.monotonic() - began
            # While they are locked, what comes later is not in their way either.
            handlers.nothing.enqueue_many([{"number": number} for number in range(200)])
            began = time.monotonic()
            wait_until(lambda: database.states().get("completed") == 450, message=worker.text)
            later = time.monotonic() - began
            holder.rollback()
        wait_until(lambda: database.states() == {"completed": 600}, message=worker.text)
        assert worker.stop() == 0
    assert database.rows("SELECT DISTINCT run_lease, cardinality(errors) FROM awa.jobs") == [(1, 0)]
    assert took < 20
    assert later < 20
    observe(
        f"the other 250 were written {took:.1f} s after their end, 200 later ones within "
        f"{later:.1f} s while the locks were held; the locked ones once they were free"
    )


@pytest.mark.fault(
    "F33",
    injected="claim, finish, heartbeat, promotion, cancel and rescheduling of the same jobs, ids shuffled",
)
def test_no_deadlocks(
    database: Database, connect: Connect, start_worker: StartWorker, observe: Observe
) -> None:
    with role_settings(database, deadlock_timeout="10ms"):
        worker = start_worker(
            "--concurrency", "32", "--processes", "2", awa={**QUICK, "HEARTBEAT_INTERVAL": 0.1}
        )
        worker.wait_ready(database.connection, children=2)
        before = deadlocks(database.connection)
        ids = [each.id for each in handlers.snooze_often.enqueue_many([{"number": n} for n in range(600)])]
        stopped = threading.Event()
        operators = [Operator(connect(), ids, stopped) for _ in range(3)]
        for operator in operators:
            operator.start()
        time.sleep(4.0)
        stopped.set()
        for operator in operators:
            operator.join(60)
        wait_until(lambda: set(database.states()) <= {"completed", "cancelled"}, message=worker.text)
        assert worker.stop() == 0
    assert [operator.error for operator in operators] == [None] * 3
    done = sum(operator.done for operator in operators)
    found = deadlocks(database.connection) - before
    assert database.value("SELECT count(*) FROM awa.jobs WHERE errors::text LIKE '%%deadlock%%'") == 0
    assert "deadlock" not in worker.text()
    assert found == 0
    observe(
        f"{done} operations in 4 s against 600 jobs that snooze and run in 2 processes: {found} deadlocks"
    )


class Operator(threading.Thread):
    """Cancels, retries and reschedules random jobs through the storage layer, many at a time."""

    def __init__(
        self, connection: psycopg.Connection[object], ids: list[int], stopped: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._ids = ids
        self._stopped = stopped
        self.done = 0
        self.error: psycopg.Error | None = None

    def run(self) -> None:
        note = '{"error": "cancelled by a test", "outcome": "cancelled"}'
        try:
            while not self._stopped.is_set():
                some = sorted(random.sample(self._ids, 40))
                step = random.randrange(5)
                if step == 0:
                    operate.cancel_hot(self._connection, some[:3], entry=note)
                elif step == 1:
                    operate.retry_ended(self._connection, some)
                elif step == 2:
                    operate.run_now(self._connection, some)
                elif step == 3:
                    operate.set_priority_hot(self._connection, some, priority=random.randint(1, 4))
                else:
                    operate.set_priority_deferred(self._connection, some, priority=random.randint(1, 4))
                self.done += 1
        except psycopg.Error as exc:
            self.error = exc
