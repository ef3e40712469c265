"""A mixed load through two workers with two children each: each effect exactly once, nothing lost."""

from __future__ import annotations

import pytest

from awa_django import Unique, enqueue_many, operations
from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

# The whole load in the system's tests; a tenth of it in the ordinary ones.
FULL = 100_000


@pytest.mark.parametrize(
    "total",
    [
        pytest.param(FULL // 10, id="tenth"),
        pytest.param(FULL, id="full", marks=[pytest.mark.system, pytest.mark.timeout(600)]),
    ],
)
def test_mixed_load_runs_each_job_once(database: Database, start_worker: StartWorker, total: int) -> None:
    """Of the jobs 1 % are unique (each enqueued twice), 5 % fail once, 20 % are deferred by 2 s."""
    unique, failing, deferred = total // 100, total // 20, total // 5
    plain = total - unique - failing - deferred
    once = handlers.record.using(unique=Unique(args=True))
    later = handlers.record.using(delay=2.0)
    start = iter(range(10**9))

    def numbers(count: int) -> list[int]:
        return [next(start) for _ in range(count)]

    of_plain, of_deferred, of_unique, of_failing = (
        numbers(count) for count in (plain, deferred, unique, failing)
    )
    # So that each child is there when the work begins, however late one comes.
    operations.pause_queue("default")
    workers = [start_worker("--processes", "2") for _ in range(2)]
    enqueue_many([handlers.record.item(number=number) for number in of_plain])
    enqueue_many([later.item(number=number) for number in of_deferred])
    answers = enqueue_many([once.item(number=number) for number in of_unique for _ in range(2)])
    enqueue_many([handlers.fail_once.item(number=number) for number in of_failing])

    assert [answer.created for answer in answers] == [True, False] * unique
    assert all(
        second.holder_id == first.id for first, second in zip(answers[::2], answers[1::2], strict=True)
    )

    for worker in workers:
        worker.wait_ready(database.connection, children=4)
    operations.resume_queue("default")
    wait_until(
        lambda: database.states() == {"completed": total},
        timeout=60 + total / 1_000,
        interval=0.5,
        message=lambda: str(database.states()),
    )
    assert [worker.stop() for worker in workers] == [0, 0]

    assert database.effects("record") == sorted(of_plain + of_deferred + of_unique)
    assert database.effects("fail_once") == of_failing
    assert database.value("SELECT count(DISTINCT pid) FROM effects") == 4
    by_attempt = database.rows("SELECT attempt, count(*) FROM awa.jobs_hot GROUP BY attempt")
    assert dict(by_attempt) == {1: total - failing, 2: failing}
    # A job that was held for too long is released and claimed again: the lease grows, the attempt does not.
    assert database.value("SELECT count(*) FROM awa.jobs_hot WHERE run_lease < attempt") == 0
    assert database.value("SELECT count(*) FROM awa.job_unique_claims") == 0
