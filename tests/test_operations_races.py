"""The operator's verbs against each other and against workers: one of two wins, and says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from awa_django import operations
from awa_django.models import HotJob, Job, QueueMeta
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage._sql import statement
from awa_django.storage.rows import Attempt, Completion, Ending
from tests.factories import insert_job
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

UNFINISHED = "11101001"
KEY = bytes(16)


def later() -> datetime:
    return timezone.now() + timedelta(days=1)


def row(job_id: int) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(job) FROM awa.jobs AS job WHERE id = %s", [job_id])
        value: dict[str, Any] = json.loads(cursor.fetchone()[0])
        return value


@pytest.fixture
def rival(clean_queue: None, connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect(autocommit=False)


def while_rival_holds(rival: psycopg.Connection[Any], work: Callable[[], Any]) -> Any:
    """Run ``work`` in a thread that has to wait for the rival's locks, commit the rival, give the answer."""
    answer: list[Any] = []

    def body() -> None:
        try:
            answer.append(work())
        finally:
            connection.close()

    thread = threading.Thread(target=body)
    thread.start()

    def is_blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))",
                [rival.info.backend_pid],
            )
            return bool(cursor.fetchone()[0])

    wait_until(is_blocked, message="the operation never waited for the rival")
    rival.commit()
    thread.join(60)
    return answer[0]


@pytest.mark.django_db(transaction=True)
def test_cancel_that_loses_to_a_completion_changes_nothing(rival: psycopg.Connection[Any]) -> None:
    job_id = insert_job("running")
    rival.execute(
        "UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now(), heartbeat_at = NULL "
        "WHERE id = %s",
        [job_id],
    )
    result = while_rival_holds(rival, lambda: operations.cancel([job_id]))
    assert (result.changed, result.refused[0].reason) == ((), "is completed")
    assert HotJob.objects.get(pk=job_id).errors == []


@pytest.mark.django_db(transaction=True)
def test_reschedule_that_loses_to_a_claim_changes_nothing(rival: psycopg.Connection[Any]) -> None:
    job_id = insert_job()
    rival.execute(
        "UPDATE awa.jobs_hot SET state = 'running', attempt = 1, run_lease = 1, heartbeat_at = now() "
        "WHERE id = %s",
        [job_id],
    )
    result = while_rival_holds(rival, lambda: operations.reschedule([job_id], later()))
    assert (result.changed, result.refused[0].reason) == ((), "is running")


@pytest.mark.django_db(transaction=True)
def test_cancel_follows_a_job_that_a_promotion_moves(rival: psycopg.Connection[Any]) -> None:
    job_id = insert_job("scheduled", progress={"percent": 50})
    with rival.cursor() as cursor:
        cursor.execute(statement("run_now"), {"job_ids": [job_id]})
    result = while_rival_holds(rival, lambda: operations.cancel([job_id]))
    assert result.changed == (job_id,)
    assert HotJob.objects.get(pk=job_id).state == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_a_move_carries_what_was_written_while_it_waited(rival: psycopg.Connection[Any]) -> None:
    job_id = insert_job("scheduled")
    rival.execute("UPDATE awa.scheduled_jobs SET priority = 1, tags = '{late}' WHERE id = %s", [job_id])
    while_rival_holds(rival, lambda: operations.run_now([job_id]))
    job = HotJob.objects.get(pk=job_id)
    assert (job.priority, job.tags) == (1, ["late"])


@pytest.mark.django_db(transaction=True)
def test_retry_waits_for_a_rival_that_takes_the_key(rival: psycopg.Connection[Any]) -> None:
    job_id = insert_job("failed", unique_key=KEY, unique_states=UNFINISHED)
    other = insert_job("failed")
    found = rival.execute(
        "INSERT INTO awa.jobs_hot (kind, unique_key, unique_states) VALUES ('rival', %s, %s) RETURNING id",
        [KEY, UNFINISHED],
    ).fetchone()
    assert found is not None
    result = while_rival_holds(rival, lambda: operations.retry([job_id, other]))
    assert result.changed == (other,)
    assert result.refused[0].reason == f"its unique key is held by job {found[0]}"


def test_a_finish_after_a_cancel_is_stale() -> None:
    job_id = insert_job("running")
    operations.cancel(job_id)
    before = row(job_id)
    attempt = Attempt(job_id, 1)
    assert finalize.complete(connection, [Completion(attempt)]) == set()
    assert finalize.finish(connection, [Ending(attempt, JobState.FAILED, '{"error": "late"}')]) == set()
    assert row(job_id) == before


@pytest.mark.django_db(transaction=True)
def test_operations_on_the_same_jobs_never_deadlock(clean_queue: None) -> None:
    ids = [insert_job("scheduled" if number % 2 else "available") for number in range(60)]
    failures: list[BaseException] = []

    def work(order: list[int], priority: int) -> None:
        try:
            for _ in range(15):
                operations.set_priority(order, priority)
                operations.reschedule(order, later())
                operations.run_now(order)
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=work, args=(order, priority))
        for priority, order in ((1, ids), (2, ids[::-1]), (3, ids[30:] + ids[:30]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(Job.objects.values_list("pk", flat=True)) == ids  # each once, in one table


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("shorten", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_of_two_who_pause_at_once_the_later_end_stays_unless_it_may_be_shortened(
    rival: psycopg.Connection[Any], known: bool, shorten: bool
) -> None:
    soon, late = timezone.now() + timedelta(minutes=5), later()
    if known:
        operations.pause_queue("mail")
        operations.resume_queue("mail")
    rival.execute(
        "INSERT INTO awa.queue_meta (queue, paused, paused_at, paused_until) "
        "VALUES ('mail', true, now(), %s) "
        "ON CONFLICT (queue) DO UPDATE SET paused = true, paused_until = excluded.paused_until",
        [late],
    )
    pause = partial(operations.pause_queue, "mail", until=soon, shorten=shorten)
    assert while_rival_holds(rival, pause).changed == shorten
    assert QueueMeta.objects.get(pk="mail").paused_until == (soon if shorten else late)


@pytest.mark.django_db(transaction=True)
def test_an_operation_wakes_who_waits_for_the_queue(
    clean_queue: None, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    listener = connect()
    listener.execute("LISTEN awa_jobs")
    listener.execute(
        "INSERT INTO awa.waiters VALUES ('w', '{mail,other,paused}', now() + interval '1 minute')"
    )
    operations.run_now([insert_job("scheduled", queue="mail")])
    operations.move_queue([insert_job(queue="nobody")], "other")
    operations.pause_queue("paused")
    operations.resume_queue("paused")
    woken = [note.payload for note in listener.notifies(timeout=60, stop_after=3)]
    assert woken == ["mail", "other", "paused"]
