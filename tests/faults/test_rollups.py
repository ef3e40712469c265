"""F94: the rollups of ended runs equal the truth whoever dies, and however many write one minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import handlers
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = pytest.mark.django_db(transaction=True)

COUNTED = (
    "SELECT coalesce(sum(completed_count), 0)::int, coalesce(sum(retried_count), 0)::int, "
    "coalesce(sum(failed_count), 0)::int FROM "
)


@pytest.mark.fault(
    "F94", injected="kill -9 of a child beside its finish, sessions that write and fold ended, two workers"
)
@pytest.mark.parametrize("point", ["before_finish", "after_finish"])
def test_rollups_equal_the_rows(
    database: Database, start_worker: StartWorker, observe: Observe, tmp_path: Path, point: str
) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(300)])
    handlers.fail_once.enqueue_many([{"number": number} for number in range(40)])
    for _ in range(5):
        handlers.always_fail.enqueue()
    killed = tmp_path / "killed"
    workers = [start_worker("--concurrency", "4", failpoints=f"{point}=kill@{killed}")]
    wait_until(killed.exists, message=workers[0].text)
    workers.append(start_worker("--concurrency", "4"))
    said = lambda: "\n".join(worker.text() for worker in workers)  # noqa: E731
    wait_until(lambda: database.states() == {"completed": 340, "failed": 5}, message=said)

    # What a rescue retried is in the rows' errors, as is what a handler's own failure did.
    retried = database.value("SELECT sum(cardinality(errors))::int FROM awa.jobs_hot") - 5
    truth = (340, retried, 5)

    def sums(table: str) -> tuple[int, ...]:
        return tuple(database.rows(COUNTED + table)[0])

    # Between them the two tables hold the truth at every moment; then the leader folds one into the other.
    counts = "completed_count, retried_count, failed_count"
    both = (
        f"(SELECT {counts} FROM awa.queue_stats UNION ALL SELECT {counts} FROM awa.queue_stats_deltas) "
        "AS both_tables"
    )
    assert sums(both) == truth
    database.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'awa%%' AND datname = current_database()"
    )
    wait_until(lambda: sums("awa.queue_stats") == truth, message=said)
    assert sums("awa.queue_stats_deltas") == (0, 0, 0)
    assert sums("awa.queue_totals") == truth
    for histogram in ("wait_histogram", "run_histogram"):
        counted = f"SELECT sum(number)::int FROM awa.queue_stats, unnest({histogram}) AS number"
        assert database.value(counted) == sum(truth)
    assert sums(both) == truth
    assert [worker.stop() for worker in workers] == [0, 0]
    observe(f"at {point}: 340 completed, {retried} retried and 5 failed, in the rollups as in the rows")
