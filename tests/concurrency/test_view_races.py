"""Each write through awa.jobs against each statement of the engine, in both orders.

A holds its transaction open, B comes second; then A commits or rolls back. B's count must tell
what B did, the row must be in exactly one table, and nothing that A committed may be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from awa_django.states import JobState
from awa_django.storage import operate
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.finalize import complete, defer, finish
from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.promote import promote
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from tests.conftest import Connect
from tests.factories import insert_job, reload_job
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("clean_queue")

Postgres = psycopg.Connection[Any]


@dataclass(frozen=True)
class Engine:
    """A statement of the engine: how many jobs it changed, and how to see that it did."""

    state: str
    run: Callable[[Postgres, int], int]
    happened: Callable[[Any], bool]
    waits: bool = True
    """False: it skips what is locked."""
    moves_on: bool = True
    """False: the row stays what the view's statement saw (heartbeat, progress)."""


@dataclass(frozen=True)
class View:
    """A statement through the view, by the states it is tried in."""

    sql: dict[str, str]
    happened: Callable[[Any], bool]
    stays: bool = False
    """True: the row stays where it is, in its state."""


def lease(job_id: int) -> Attempt:
    return Attempt(job_id, 1)


ENGINE = {
    "claim": Engine(
        "available",
        lambda on, _: len(claim(on, ClaimRequest(limits={"default": 5}, total=5, worker="racer"))),
        lambda job: job is not None and job.run_lease == 1 and job.worker == "racer",
        waits=False,
    ),
    "promote": Engine(
        "scheduled",
        lambda on, _: sum(promote(on, batch=10).values()),
        lambda job: job is not None and job.table == "awa.jobs_hot",
        waits=False,
    ),
    "complete": Engine(
        "running",
        lambda on, job_id: len(complete(on, [Completion(lease(job_id))])),
        lambda job: job is not None and job.state == "completed",
    ),
    "fail": Engine(
        "running",
        lambda on, job_id: len(finish(on, [Ending(lease(job_id), JobState.FAILED, '{"error": "boom"}')])),
        lambda job: job is not None and job.state == "failed" and len(job.errors) == 1,
    ),
    "retry": Engine(
        "running",
        lambda on, job_id: len(
            defer(on, [Deferral(lease(job_id), JobState.RETRYABLE, 60, '{"error": "boom"}')])
        ),
        lambda job: job is not None and job.state == "retryable" and len(job.errors) == 1,
    ),
    "heartbeat": Engine(
        "running",
        lambda on, job_id: len(heartbeat(on, [lease(job_id)])),
        lambda job: job is not None and job.heartbeat_at is not None and job.heartbeat_at.year > 2020,
        moves_on=False,
    ),
    "progress": Engine(
        "running",
        lambda on, job_id: len(progress(on, {lease(job_id): json.dumps({"percent": 77})})),
        lambda job: job is not None and job.progress == {"percent": 77},
        moves_on=False,
    ),
    "cancel_hot": Engine(
        "available",
        lambda on, job_id: len(operate.cancel_hot(on, [job_id], entry="{}")),
        lambda job: job is not None and job.state == "cancelled",
    ),
    "cancel_running": Engine(
        "running",
        lambda on, job_id: len(operate.cancel_hot(on, [job_id], entry='{"error": "cancelled"}')),
        lambda job: job is not None and job.state == "cancelled" and len(job.errors) == 1,
    ),
    "cancel_deferred": Engine(
        "scheduled",
        lambda on, job_id: len(operate.cancel_deferred(on, [job_id])),
        lambda job: job is not None and job.state == "cancelled",
    ),
}
IN_PLACE = "UPDATE awa.jobs SET priority = -5 WHERE id = %s"
VIEW = {
    "update": View(
        {"available": IN_PLACE, "running": IN_PLACE, "scheduled": IN_PLACE},
        lambda job: job is not None and job.priority == -5,
        stays=True,
    ),
    "move": View(
        {
            "available": "UPDATE awa.jobs SET run_at = now() + '1 hour', tags = '{moved}' WHERE id = %s",
            "running": "UPDATE awa.jobs SET state = 'retryable', tags = '{moved}' WHERE id = %s",
            "scheduled": "UPDATE awa.jobs SET state = 'available', tags = '{moved}' WHERE id = %s",
        },
        lambda job: job is not None and job.tags == ["moved"],
    ),
    "delete": View(
        dict.fromkeys(("available", "running", "scheduled"), "DELETE FROM awa.jobs WHERE id = %s"),
        lambda job: job is None,
    ),
}
KEY = b"r" * 16


def make(state: str) -> int:
    columns: dict[str, object] = {
        "run_at": "2020-01-01 00:00+00",
        "unique_key": KEY,
        "unique_states": "11101001",
    }
    if state == "running":
        columns |= {"heartbeat_at": "2020-01-01 00:00+00"}
    return insert_job(state, **columns)


@pytest.fixture
def sessions(connect: Connect) -> tuple[Postgres, Postgres, Postgres]:
    """A, B, and one that looks at them."""
    a, b, observer = connect(autocommit=False), connect(), connect()
    for connection in (a, b):
        connection.execute("SET lock_timeout = '60s'")
    a.commit()
    return a, b, observer


def is_blocked(observer: Postgres, b: Postgres, a: Postgres) -> bool:
    row = observer.execute("SELECT pg_blocking_pids(%s)", [b.info.backend_pid]).fetchone()
    return row is not None and a.info.backend_pid in row[0]


def second(
    sessions: tuple[Postgres, Postgres, Postgres],
    run: Callable[[Postgres], int],
    *,
    waits: bool,
    commit: bool,
) -> int:
    """Run B's statement while A's transaction is open, end that, and give B's count."""
    a, b, observer = sessions
    with ThreadPoolExecutor(1) as pool:
        result: Future[int] = pool.submit(run, b)
        try:
            if waits:
                wait_until(lambda: is_blocked(observer, b, a), message="B does not wait for A")
            else:
                result.result(timeout=60)
        finally:
            (a.commit if commit else a.rollback)()
        return result.result(timeout=60)


def check(job_id: int, observer: Postgres) -> Any:
    """The row, in one table at most, its unique claim as its state demands."""
    job = reload_job(job_id)
    held = observer.execute("SELECT job_id FROM awa.job_unique_claims").fetchall()
    holds = job is not None and job.state in ("scheduled", "available", "running", "retryable")
    assert held == ([(job_id,)] if holds else [])
    return job


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("engine", ENGINE.values(), ids=ENGINE)
@pytest.mark.parametrize("view", VIEW.values(), ids=VIEW)
@pytest.mark.fault(
    "F65",
    injected="UPDATE and DELETE through the view after each of 10 statements of the engine",
)
@pytest.mark.fault("F67", injected="DELETE through the view after each move of the engine")
def test_view_comes_second(
    view: View, engine: Engine, commit: bool, sessions: tuple[Postgres, Postgres, Postgres]
) -> None:
    a, _, observer = sessions
    job_id = make(engine.state)
    assert engine.run(a, job_id) == 1
    statement = view.sql[engine.state]

    count = second(sessions, lambda b: b.execute(statement, [job_id]).rowcount, waits=True, commit=commit)

    job = check(job_id, observer)
    assert count == (0 if commit and engine.moves_on else 1)
    assert view.happened(job) == (count == 1)
    if commit and (engine.moves_on or view.stays):
        assert engine.happened(job)  # not lost under the view's write


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("engine", ENGINE.values(), ids=ENGINE)
@pytest.mark.parametrize("view", VIEW.values(), ids=VIEW)
@pytest.mark.fault("F65", injected="each of 10 statements of the engine after the view's UPDATE and DELETE")
@pytest.mark.fault("F67", injected="each move of the engine after a DELETE through the view")
def test_engine_comes_second(
    view: View, engine: Engine, commit: bool, sessions: tuple[Postgres, Postgres, Postgres]
) -> None:
    a, _, observer = sessions
    job_id = make(engine.state)
    assert a.execute(view.sql[engine.state], [job_id]).rowcount == 1

    count = second(sessions, lambda b: engine.run(b, job_id), waits=engine.waits, commit=commit)

    job = check(job_id, observer)
    expected = engine.waits and (view.stays or not commit)
    assert count == (1 if expected else 0)
    if count:
        assert engine.happened(job)
    if commit:
        assert view.happened(job)
    else:
        assert job is not None
        assert not view.happened(job)


@pytest.mark.parametrize("late", VIEW.values(), ids=VIEW)
@pytest.mark.parametrize("early", VIEW.values(), ids=VIEW)
@pytest.mark.parametrize("state", ["available", "running", "scheduled"])
@pytest.mark.fault("F65", injected="two writers through the view on one row")
def test_two_writers_through_the_view(
    state: str, early: View, late: View, sessions: tuple[Postgres, Postgres, Postgres]
) -> None:
    a, _, observer = sessions
    job_id = make(state)
    assert a.execute(early.sql[state], [job_id]).rowcount == 1
    statement = late.sql[state]
    count = second(sessions, lambda b: b.execute(statement, [job_id]).rowcount, waits=True, commit=True)
    assert count == 0
    assert early.happened(check(job_id, observer))


def test_update_reports_nothing_for_a_job_that_left_its_where(
    sessions: tuple[Postgres, Postgres, Postgres],
) -> None:
    a, _, _ = sessions
    job_id = insert_job(queue="a")
    assert operate.move_queue_hot(a, [job_id], queue="b") == [(job_id, "b")]
    statement = "UPDATE awa.jobs SET priority = 1 WHERE queue = 'a'"
    count = second(sessions, lambda b: b.execute(statement).rowcount, waits=True, commit=True)
    assert count == 0
    assert reload_job(job_id).priority == 2


def test_heartbeat_set_by_the_statement_is_compared(sessions: tuple[Postgres, Postgres, Postgres]) -> None:
    a, _, _ = sessions
    job_id = make("running")
    assert len(heartbeat(a, [lease(job_id)])) == 1
    statement = "UPDATE awa.jobs SET heartbeat_at = '2021-01-01' WHERE id = %s"
    count = second(sessions, lambda b: b.execute(statement, [job_id]).rowcount, waits=True, commit=True)
    assert count == 0
    assert reload_job(job_id).heartbeat_at.year > 2021


@pytest.mark.parametrize("clause", ["FOR UPDATE", "FOR UPDATE NOWAIT", "FOR UPDATE SKIP LOCKED"])
@pytest.mark.fault("F68", injected="SELECT ... FOR UPDATE (NOWAIT, SKIP LOCKED) on the view")
def test_select_for_update_through_the_view_locks_nothing(
    clause: str, sessions: tuple[Postgres, Postgres, Postgres]
) -> None:
    a, b, _ = sessions
    job_id = make("available")
    assert a.execute(f"SELECT id FROM awa.jobs WHERE id = %s {clause}", [job_id]).fetchone() == (job_id,)
    b.execute("SET lock_timeout = '5s'")
    assert b.execute("DELETE FROM awa.jobs_hot WHERE id = %s", [job_id]).rowcount == 1
