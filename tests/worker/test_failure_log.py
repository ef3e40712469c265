"""Bad ends in the log: one record each with the job's facts, no row's content, and no flood."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from awa_django.states import JobState
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker import failure_log, verdict
from awa_django.worker.failure_log import MOST, WINDOW, FailureLog
from tests.test_docs import blocks
from tests.worker.completer_desk import CompleterDesk

LOGGER = "awa_django.worker.failure_log"
SECRET = "4111-1111"


def claimed(number: int = 1, *, kind: str = "shop.pay", attempt: int = 1) -> ClaimedJob:
    return ClaimedJob(number, 7, kind, "mail", attempt, 2, json.dumps({"card": SECRET}), None, None)


def ended(job: ClaimedJob) -> Outcome:
    return verdict.raised(job, ValueError(f"card {SECRET}\nforged"), worker="w/1")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> FailureLog:
    caplog.set_level(logging.INFO, logger=LOGGER)
    return FailureLog()


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(failure_log, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def sleep(seconds: float) -> None:
        clock.now += seconds

    return sleep


def test_bad_end_is_one_record_that_names_job_and_class(
    log: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for attempt in (1, 2):
        job = claimed(attempt=attempt)
        log.note(job, ended(job))
    again, failed = caplog.records
    assert (again.levelno, failed.levelno) == (logging.INFO, logging.WARNING)
    assert failed.getMessage() == (
        "job 1 of kind shop.pay in queue mail failed after attempt 2 of 2: ValueError"
    )
    assert again.getMessage() == (
        "job 1 of kind shop.pay in queue mail is tried again after attempt 1 of 2: ValueError"
    )
    facts = {name: failed.__dict__[name] for name in ("job_id", "run_lease", "kind", "queue", "attempt")}
    assert facts == {"job_id": 1, "run_lease": 7, "kind": "shop.pay", "queue": "mail", "attempt": 2}
    assert (failed.__dict__["outcome"], failed.__dict__["exception"]) == ("failed", "ValueError")
    assert SECRET not in json.dumps([record.__dict__ for record in caplog.records], default=repr)


@pytest.mark.parametrize(
    "outcome",
    [
        Completion(Attempt(1, 7)),
        Release(Attempt(1, 7)),
        Deferral(Attempt(1, 7), JobState.SCHEDULED, 1.0, refund=True),
        Ending(Attempt(1, 7), JobState.CANCELLED, "{}"),
    ],
    ids=["completed", "released", "snoozed", "cancelled"],
)
def test_nothing_is_said_of_other_ends(
    log: FailureLog, caplog: pytest.LogCaptureFixture, outcome: Outcome
) -> None:
    log.note(claimed(), outcome)
    log.flush(all_of_them=True)
    assert caplog.records == []


def test_end_without_an_exception_says_how(log: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    job = claimed(attempt=2)
    log.note(job, verdict.failed(job, "timed out after 1 s", worker="w", outcome="timed_out"))
    assert caplog.messages[0].endswith("after attempt 2 of 2: timed_out")


def test_storm_of_one_kind_is_a_few_records_and_a_number_and_hides_no_other(
    log: FailureLog, caplog: pytest.LogCaptureFixture, sleep: Callable[[float], None]
) -> None:
    for number in range(1000):
        job = claimed(number, attempt=2)
        log.note(job, ended(job))
    other = claimed(5000, kind="shop.other", attempt=2)
    log.note(other, ended(other))
    assert len(caplog.records) == MOST + 1
    assert caplog.records[-1].__dict__["job_id"] == 5000
    caplog.clear()
    log.flush()
    assert caplog.records == []
    sleep(WINDOW)
    log.flush()
    log.flush()
    assert caplog.messages == [f"{1000 - MOST} more jobs of kind shop.pay failed within 60 s"]
    assert caplog.records[0].__dict__["count"] == 1000 - MOST
    job = claimed(attempt=2)
    log.note(job, ended(job))
    assert len(caplog.records) == 2


def test_end_of_the_worker_tells_what_was_left_out(log: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST + 3):
        job = claimed(number)
        log.note(job, ended(job))
    log.flush(all_of_them=True)
    assert caplog.messages[-1] == "3 more jobs of kind shop.pay are tried again within 60 s"


def test_formatter_of_the_documentation_makes_one_object_of_each_record(
    log: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    [source] = [code for code in blocks("docs/worker.md", "python") if "class JsonFormatter" in code]
    names: dict[str, Any] = {}
    exec(source, names)
    job = claimed(kind='k"\n{"level": "ERROR"}', attempt=2)
    log.note(job, ended(job))
    line = names["JsonFormatter"]().format(caplog.records[0])
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["kind"] == 'k"\\n{"level": "ERROR"}'
    assert (entry["level"], entry["job_id"], entry["exception"]) == ("WARNING", 1, "ValueError")
    assert names["LOGGING"]["formatters"]["json"]["()"].endswith(".JsonFormatter")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_completer_notes_what_is_written_and_nothing_that_is_stale(
    desk: CompleterDesk, caplog: pytest.LogCaptureFixture
) -> None:
    entry = json.dumps({"error": SECRET, "class": "shop.NoMoney", "outcome": "failed", "run_lease": 1})
    failed, stale = desk.run(), desk.run()
    desk.completer.put(failed, Ending(failed.attempt, JobState.FAILED, entry))
    desk.completer.put(stale, Ending(Attempt(stale.job.id, 9), JobState.FAILED, entry))
    desk.completer.start()
    desk.settle()
    told: list[Any] = [record for record in caplog.records if record.name == LOGGER]
    assert [(record.job_id, record.exception) for record in told] == [(failed.job.id, "shop.NoMoney")]
