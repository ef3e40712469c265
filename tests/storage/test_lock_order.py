"""Completions of many runs lock them in id order, whatever the statistics and the heap are like.

Two batches that lock the same rows in different orders would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from awa_django.storage import finalize
from awa_django.storage.plan import always_plan_by_index
from awa_django.storage.rows import Attempt, Completion
from tests.conftest import Connect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

COUNT = 30
Database = psycopg.Connection[Any]


class Recorder(psycopg.Cursor[Any]):
    """Keeps the rows of its last answer: a statement returns them in the order in which it changed them."""

    rows: list[tuple[Any, ...]]

    def fetchall(self) -> list[Any]:
        Recorder.rows = super().fetchall()
        return Recorder.rows


def runs_in_reverse(database: Database) -> list[Attempt]:
    """Runs whose rows lie in their page in reverse. No statistics know of them, so they are scanned."""
    database.execute("TRUNCATE awa.jobs_hot")
    rows = database.execute(
        "INSERT INTO awa.jobs_hot (kind) SELECT 'tests.job' FROM generate_series(1, %s) RETURNING id", [COUNT]
    ).fetchall()
    for (job_id,) in reversed(rows):
        database.execute(
            "UPDATE awa.jobs_hot SET state = 'running', attempt = 1, run_lease = 1, attempted_at = now(), "
            "heartbeat_at = now() WHERE id = %s",
            [job_id],
        )
    return [Attempt(job_id, 1) for (job_id,) in rows]


@pytest.mark.parametrize("own", [False, True], ids=["any session", "a session that always plans so"])
@pytest.mark.parametrize(
    "finish",
    [
        lambda database, runs: finalize.complete(database, [Completion(run) for run in runs]),
        finalize.complete_and_delete,
    ],
    ids=["complete", "complete and delete"],
)
def test_runs_are_ended_in_the_order_of_their_ids(
    connect: Connect, finish: Callable[[Database, list[Attempt]], set[int]], own: bool
) -> None:
    database = connect()
    runs = runs_in_reverse(database)
    if own:
        always_plan_by_index(database)
    database.cursor_factory = Recorder
    assert finish(database, runs[::-1]) == {run.job_id for run in runs}
    assert [job_id for (job_id,) in Recorder.rows] == [run.job_id for run in runs]
    assert own == (database.execute("SHOW enable_seqscan").fetchone() == ("off",))
