"""Each reason why a job waits, from a database in which it is so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from awa_django import operations, registry
from awa_django.storage.claim import ClaimRequest, claim_one
from awa_django.storage.finalize import defer
from awa_django.storage.promote import promote
from awa_django.why import explain, waiting
from awa_django.worker import verdict
from tests.conftest import Connect
from tests.factories import insert_job, update_job
from tests.why.asked import KEY, PAST, add_worker, behind, codes, declared, only, run_sql

pytestmark = pytest.mark.django_db


def test_a_paused_queue(served: None) -> None:
    job_id = insert_job()
    operations.pause_queue("default", by="ann")
    reason = only(job_id)
    assert reason.code == "paused"
    assert "by ann" in reason.text
    assert "until it is resumed" in reason.text
    run_sql("UPDATE awa.queue_meta SET paused_until = 'infinity'")
    assert codes(job_id) == ["paused"]
    run_sql("UPDATE awa.queue_meta SET paused_until = now()")  # the claim goes on then
    assert codes(job_id) == ["next"]


def test_a_job_of_the_future(served: None) -> None:
    reason = only(insert_job("scheduled"))
    assert reason.code == "future"
    assert "(in 1 h" in reason.text or "(in 59 min" in reason.text


def test_an_available_job_that_is_not_due(served: None) -> None:
    job_id = insert_job()
    update_job(job_id, run_at="now() + interval '1 hour'")
    assert codes(job_id) == ["future"]


def test_a_job_that_waits_for_its_retry(served: None) -> None:
    job_id = insert_job(
        "retryable", attempt=2, max_attempts=5, errors=[{"error": "no route", "class": "OSError"}]
    )
    reason = only(job_id)
    assert reason.code == "retry_later"
    assert "(3 of 5)" in reason.text
    assert "OSError: no route" in reason.text


def test_what_will_hold_a_job_later_is_told_after_its_time(served: None) -> None:
    job_id = insert_job("scheduled", queue="mail")
    operations.pause_queue("mail")
    assert codes(job_id) == ["future", "paused", "no_worker"]


@pytest.mark.parametrize(
    ("led", "run_at", "code"),
    [
        (True, "now() - interval '1 minute'", "promotion_behind"),
        (True, "now()", "being_promoted"),
        (False, "now() - interval '1 minute'", "no_promoter"),
    ],
)
def test_a_due_job_that_is_not_promoted(led: bool, run_at: str, code: str, served: None) -> None:
    for _ in range(3):
        update_job(insert_job("scheduled"), run_at=PAST)
    job_id = insert_job("scheduled")
    update_job(job_id, run_at=run_at)
    if not led:
        run_sql("UPDATE awa.leaders SET expires_at = now() WHERE duty = 'promote'")
    reason = only(job_id)
    assert reason.code == code
    if code != "being_promoted":
        assert "3 jobs are before it" in reason.text
    promote(connection, batch=10)
    assert codes(job_id) == ["behind"]


def test_no_worker_at_all(served: None) -> None:
    run_sql("DELETE FROM awa.runtime_instances")
    reason = only(insert_job(queue="it's mine"))
    assert reason.code == "no_worker"
    assert "No worker runs at all" in reason.text
    assert "--queues 'it'\"'\"'s mine'" in reason.advice


def test_workers_of_other_queues_only(served: None) -> None:
    reason = only(insert_job(queue="mail"))
    assert (reason.code, "1 process serves other queues" in reason.text) == ("no_worker", True)


@pytest.mark.parametrize(
    ("worker", "code"),
    [
        ({"draining": True}, "worker_draining"),
        ({"seen": PAST}, "worker_silent"),
        ({"supervisor": None}, "no_child"),
    ],
)
def test_workers_that_claim_nothing(worker: Any, code: str, served: None) -> None:
    run_sql("DELETE FROM awa.runtime_instances")
    add_worker(**worker)
    assert codes(insert_job()) == [code]


def test_a_kind_that_nobody_knows(served: None) -> None:
    reason, *_ = explain(insert_job(kind="tests.nobody"))
    assert reason.code == "unknown_kind"
    run_sql("INSERT INTO awa.job_kinds (kind) VALUES ('tests.nobody')")  # seen in the tables, not declared
    assert codes(insert_job(kind="tests.nobody"))[0] == "unknown_kind"


def test_a_kind_that_is_spelled_much_like_another_one(served: None) -> None:
    [known, *_] = sorted(registry.kinds(), key=len, reverse=True)
    reason, *_ = explain(insert_job(kind=known[:-1]))
    assert (reason.code, f"Is {known} meant?" in reason.advice) == ("unknown_kind", True)
    reason, *_ = explain(insert_job(kind="q"))
    assert (reason.code, "AWA['IMPORTS']" in reason.advice) == ("unknown_kind", True)


def test_an_advice_names_the_command(served: None) -> None:
    operations.pause_queue("it's mine")
    paused, *_ = explain(insert_job(queue="it's mine"))
    assert "manage.py awa_queues resume 'it'\"'\"'s mine'" in paused.advice
    for state, verb in (("scheduled", "run-now"), ("failed", "retry")):
        job_id = insert_job(state)
        assert f"manage.py awa_jobs {verb} {job_id}" in only(job_id).advice


def test_a_kind_that_workers_put_back(served: None) -> None:
    job_id = insert_job()
    request = ClaimRequest(limits={"default": 1}, total=1, worker="w/1")
    claimed = claim_one(connection, job_id, request)
    assert claimed is not None
    defer(connection, [verdict.unknown_kind(claimed)])
    first, second = explain(job_id)
    assert (first.code, second.code) == ("unknown_kind", "future")
    assert "put it back 1 time" in first.text
    for count in ("'many'", "-1", "[]", "true", "null"):  # whatever somebody may write there
        update_job(job_id, metadata=f"""'{{"awa:unknown_kind": {{"count": {count.replace("'", '"')}}}}}'""")
        assert codes(job_id) == ["future"]
    update_job(job_id, metadata="""'{"awa:unknown_kind": {"count": 1e400}}'""")
    assert "1,000,000 times" in explain(job_id)[0].text


def test_a_kind_that_this_process_knows_needs_no_catalogue(served: None) -> None:
    run_sql("DELETE FROM awa.job_kinds")
    with declared("tests.here"):
        assert codes(insert_job(kind="tests.here")) == ["next"]


def test_jobs_that_are_claimed_before(served: None) -> None:
    behind(3)
    insert_job(priority=1)
    insert_job(priority=3)
    insert_job(queue="mail")
    update_job(insert_job(priority=1), run_at="now() + interval '1 hour'")
    job_id = insert_job()
    insert_job()
    reason = only(job_id)
    assert reason.code == "behind"
    assert reason.text.startswith("4 available jobs of its queue default are before it")


def test_what_is_before_is_counted_to_a_cap(served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "COUNT_CAP", 2)
    behind(4)
    assert only(insert_job()).text.startswith("over 2 available jobs")


def test_workers_that_have_no_room(served: None) -> None:
    job_id = insert_job()
    insert_job("running", worker="w/1")
    assert codes(job_id) == ["next"]
    insert_job("running", worker="w/1")
    reason = only(job_id)
    assert reason.code == "workers_busy"
    assert "(2 at once)" in reason.text
    behind(1)
    assert codes(job_id) == ["behind", "workers_busy"]
    add_worker("w/2")
    assert codes(job_id) == ["behind"]


def test_a_job_whose_key_another_one_holds(served: None) -> None:
    holder_id = insert_job("completed", unique_key=KEY, unique_states="11111111")
    job_id = insert_job("scheduled", unique_key=KEY, unique_states="01100000")
    future, conflict = explain(job_id)
    assert (future.code, conflict.code, conflict.job_id) == ("future", "unique_conflict", holder_id)
    assert str(holder_id) in conflict.text
    operations.delete(holder_id)
    assert codes(job_id) == ["future"]
    own = insert_job("scheduled", unique_key=bytes(16), unique_states="11101001")
    assert codes(own) == ["future"]  # it holds its key itself


def test_attempts_that_are_used_up(served: None) -> None:
    job_id = insert_job(attempt=5, max_attempts=5)
    assert codes(job_id) == ["attempts_used_up", "next"]
    claimed = claim_one(connection, job_id, ClaimRequest(limits={}, total=1, worker="w/1"))
    assert claimed is not None
    assert verdict.not_begun(claimed, worker="w/1") is not None  # what is told is so


def test_a_job_that_is_too_old_to_begin(served: None) -> None:
    own = insert_job(metadata={"awa:max_age": 60})
    update_job(own, run_at=PAST)
    assert codes(own)[0] == "too_old"
    update_job(own, metadata="""'{"awa:max_age": 7200}'""")
    assert codes(own) == ["unclaimed"]
    update_job(own, metadata="""jsonb_build_object('awa:max_age', 7200, 'awa:due_at', 1)""")
    assert codes(own) == ["unclaimed"]  # the first attempt counts from run_at
    update_job(own, attempt="1")
    assert codes(own)[0] == "too_old"
    with declared("tests.young", max_age=timedelta(minutes=1)):
        young = insert_job(kind="tests.young", priority=1)
        update_job(young, run_at=PAST)
        assert codes(young)[0] == "too_old"


def test_a_job_that_stands_first_for_long(served: None) -> None:
    job_id = insert_job()
    assert codes(job_id) == ["next"]
    update_job(job_id, run_at=PAST)
    reason = only(job_id)
    assert (reason.code, bool(reason.advice)) == ("unclaimed", True)


@pytest.mark.django_db(transaction=True)
def test_a_row_that_an_open_transaction_has_locked(clean_queue: None, connect: Connect, served: None) -> None:
    job_id = insert_job()
    other: psycopg.Connection[Any] = connect(autocommit=False, application_name="the-other")
    with other.transaction():  # a savepoint below has a number of its own
        other.execute("SELECT 1")
        with other.transaction():
            other.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [job_id])
            reason = only(job_id)
            assert reason.code == "locked"
            assert "the-other" in reason.text
            assert str(other.info.backend_pid) in reason.text
    other.rollback()
    assert codes(job_id) == ["next"]
