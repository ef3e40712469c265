"""Scaling: how many workers are wanted, by the formula, the command and the metrics."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from awa_django.conf import get_settings
from awa_django.errors import ConfigurationError
from awa_django.metrics import render
from awa_django.scaling import DEFAULT_SLOTS, Wanted, wanted
from awa_django.storage.stats import fold_stats
from awa_django.storage.status import QueueStatus, WorkerStatus
from tests.factories import insert_job, update_job
from tests.test_metrics import count_run, execute, samples

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 1, 31, tzinfo=timezone.get_default_timezone())


def queue(name: str = "mail", **counts: Any) -> QueueStatus:
    nothing: dict[str, Any] = dict.fromkeys(QueueStatus._fields, 0)
    return QueueStatus(**{**nothing, "queue": name, "paused": False, **counts})


def worker(name: str, *, supervisor: str | None = None, queues: list[str] | None = None, **more: Any) -> Any:
    columns: dict[str, Any] = {
        "name": name, "supervisor": supervisor, "hostname": "h", "pid": 1, "version": "1",
        "queues": queues or [], "concurrency": 0, "running": 0, "draining": False, "started_at": NOW,
        "unseen_seconds": 1.0,
    }  # fmt: skip
    return WorkerStatus(**{**columns, **more})


def one(counts: dict[str, Any], mean: float, **options: Any) -> Wanted:
    [found] = wanted([queue(**counts)], [], {"mail": mean}, target=MINUTE, **options)
    return found


@pytest.mark.parametrize(
    ("counts", "mean", "slots"),
    [
        ({}, 1, 0),
        ({"available": 1}, 0.001, 1),
        ({"running": 1}, 0.001, 1),
        ({"available": 600}, 1, 10),
        ({"available": 601}, 1, 11),
        ({"available": 300, "overdue": 100, "due_soon": 100, "running": 100}, 1, 10),
        ({"running": 12}, 3600, 12),  # no job takes more than one slot
        ({"available": 5, "running": 12}, 3600, 17),
        ({"available": 60}, 0.1, 1),
        ({"available": 3}, 20, 1),
        ({"deferred": 10_000}, 20, 0),
        ({"available": 600, "paused": True}, 1, 0),
        ({"available": 600, "running": 2, "paused": True}, 90, 2),
        ({"available": 5}, 0, 0),
    ],
)
def test_slots_end_within_the_target_what_is_known(counts: dict[str, Any], mean: float, slots: int) -> None:
    assert one(counts, mean).slots == slots


def test_waiting_job_wants_a_slot_even_where_runs_take_no_time() -> None:
    assert one({"available": 1}, 1e-9).slots == 1


def test_more_work_never_wants_fewer_and_a_longer_target_never_more() -> None:
    found = [one({"available": jobs}, 0.7).slots for jobs in range(2000)]
    assert found == sorted(found)
    by_target = [
        wanted([queue(available=1000)], [], {"mail": 0.7}, target=timedelta(seconds=seconds))[0].slots
        for seconds in range(1, 600)
    ]
    assert by_target == sorted(by_target, reverse=True)
    assert by_target[-1] >= 1


def test_queue_in_which_nothing_ever_ran_wants_some() -> None:
    [found] = wanted([queue(available=100)], [], {}, target=MINUTE)
    assert (found.slots, found.workers) == (2, 1)


def test_slots_of_a_worker_are_measured_at_those_that_live_and_serve_the_queue() -> None:
    workers = [
        worker("a", queues=["mail"]),
        worker("a/1", supervisor="a", concurrency=3),
        worker("a/2", supervisor="a", concurrency=3),
        worker("b", queues=["mail", "other"]),
        worker("b/1", supervisor="b", concurrency=4),
        worker("silent", queues=["mail"], unseen_seconds=300.0),
        worker("silent/1", supervisor="silent", concurrency=50, unseen_seconds=300.0),
        worker("leaving", queues=["mail"], draining=True),
        worker("leaving/1", supervisor="leaving", concurrency=50, draining=True),
    ]
    queues = [queue("mail", available=600), queue("other", available=600), queue("none", available=600)]
    means = dict.fromkeys(("mail", "other", "none"), 1.0)
    found = wanted(queues, workers, means, target=MINUTE)
    assert [each.slots_per_worker for each in found] == [5, 4, DEFAULT_SLOTS]
    assert [each.workers for each in found] == [2, 3, 2]
    given = wanted(queues, workers, means, target=MINUTE, slots_per_worker=10)
    assert [each.workers for each in given] == [1, 1, 1]


def autoscale(*arguments: str) -> Any:
    out = StringIO()
    call_command("awa_autoscale", "--json", *arguments, stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.django_db
def test_command_and_metrics_tell_what_the_queues_want() -> None:
    for _ in range(30):
        insert_job(queue="mail")
    update_job(insert_job("scheduled", queue="mail"), run_at="now() + interval '20 s'")
    update_job(insert_job("scheduled", queue="mail"), run_at="now() + interval '3 h'")
    update_job(insert_job("retryable", queue="mail"), run_at="now() - interval '20 s'")
    insert_job("running", queue="slow")
    update_job(insert_job("scheduled", queue="slow"), run_at="now() + interval '3 h'")
    for _ in range(3):
        count_run("a.kind", wait=0, run=4)
    count_run("b.kind", wait=0, run=900, queue="slow")
    fold_stats(connection, batch=10)
    found = autoscale()
    assert found["target_seconds"] == 60
    by_queue = {each["queue"]: each for each in found["queues"]}
    assert by_queue["mail"] == {
        "queue": "mail", "waiting": 32, "running": 0, "mean_seconds": 4.0, "slots": 3, "workers": 1,
    }  # fmt: skip
    assert by_queue["slow"]["slots"] == 1
    assert (found["slots"], found["slots_per_worker"], found["workers"]) == (4, 8, 1)
    told = samples(render())
    assert told['awa_wanted_slots{queue="mail"}'] == 3
    assert told['awa_wanted_workers{queue="mail"}'] == 1
    assert told['awa_wanted_slots{queue="slow"}'] == 1
    narrow = autoscale("--queues", "mail", "--target", "16", "--slots", "2")
    assert [each["queue"] for each in narrow["queues"]] == ["mail"]
    assert (narrow["slots"], narrow["workers"]) == (8, 4)
    out = StringIO()
    call_command("awa_autoscale", "--no-color", stdout=out)
    assert "together 1 worker of 8 slots" in out.getvalue()


@pytest.mark.django_db
def test_mean_is_of_the_last_hour_and_else_of_all_time() -> None:
    insert_job(queue="mail")
    count_run("a.kind", wait=0, run=2)
    fold_stats(connection, batch=10)
    count_run("a.kind", wait=0, run=8)
    fold_stats(connection, batch=10)
    assert autoscale("--queues", "mail")["queues"][0]["mean_seconds"] == 5
    execute("UPDATE awa.queue_stats SET minute = minute - interval '2 hours'")
    assert autoscale("--queues", "mail")["queues"][0]["mean_seconds"] == 5
    count_run("a.kind", wait=0, run=1)
    fold_stats(connection, batch=10)
    assert autoscale("--queues", "mail")["queues"][0]["mean_seconds"] == 1


@pytest.mark.django_db
def test_target_is_a_setting(settings: Any) -> None:
    insert_job(queue="mail")
    settings.AWA = {"DRAIN_TARGET": 5}
    assert autoscale()["target_seconds"] == 5
    settings.AWA = {"DRAIN_TARGET": 0}
    with pytest.raises(ConfigurationError, match="DRAIN_TARGET"):
        get_settings()


def test_command_refuses_a_number_that_is_none() -> None:
    for arguments in (["--slots", "0"], ["--target", "soon"]):
        with pytest.raises(CommandError):
            call_command("awa_autoscale", *arguments)


@pytest.mark.django_db
def test_command_says_of_a_queue_that_nobody_knows_it() -> None:
    insert_job(queue="mail")
    err = StringIO()
    call_command("awa_autoscale", "--queues", "mail,mial,default", stdout=StringIO(), stderr=err)
    assert err.getvalue().strip() == "no job, worker or schedule knows a queue 'mial'"
