"""A real worker with OpenTelemetry and Sentry: what it has to tell is told before its process ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.acceptance
def test_worker_sends_spans_and_events_before_it_ends(
    database: Database, start_worker: StartWorker, worker_env: dict[str, str], tmp_path: Path
) -> None:
    spans, events = tmp_path / "spans", tmp_path / "events"
    worker_env |= {"TEST_SPANS": str(spans), "TEST_EVENTS": str(events)}
    traced: dict[str, Any] = {"metadata": {"traceparent": PARENT}}
    ids = [
        handlers.record.using(**traced).enqueue(1).id,
        handlers.record_async.using(**traced).enqueue(2).id,
        handlers.always_fail.using(max_attempts=1, **traced).enqueue().id,
    ]
    worker = start_worker(
        "--drain",
        awa={
            "IMPORTS": ["tests.handlers", "tests.integrations.exporting"],
            "MIDDLEWARE": [
                "awa_django.integrations.sentry.report_failures",
                "awa_django.integrations.opentelemetry.tracing",
            ],
            "CARRY": ["traceparent"],
        },
    )
    assert worker.wait() == 0
    told = lines(spans)
    assert {each["attributes"]["messaging.message.id"] for each in told} == set(map(str, ids))
    for each in told:
        _, trace_id, span_id, _ = PARENT.split("-")
        assert (each["context"]["trace_id"], each["parent_id"]) == (f"0x{trace_id}", f"0x{span_id}")
        assert each["attributes"]["awa.worker"].endswith("/1")
    [event] = lines(events)  # once, whatever of Sentry's own integrations is on
    assert event["tags"]["awa.job_id"] == str(ids[2])
    assert event["contexts"]["trace"]["trace_id"] == PARENT.split("-")[1]
    assert event["exception"]["values"][0]["value"] == "it never works"


def observed(file: Path) -> dict[str, set[int]]:
    """The processes that told each instrument."""
    found: dict[str, set[int]] = {}
    for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
        if line.endswith("\n"):  # it may be in the middle of the last one
            for resource in json.loads(line)["resource_metrics"]:
                for scope in resource["scope_metrics"]:
                    for metric in scope["metrics"]:
                        pid = resource["resource"]["attributes"]["process.pid"]
                        found.setdefault(metric["name"], set()).add(pid)
    return found


@pytest.mark.acceptance
def test_worker_tells_the_gauges_of_the_queue_by_its_own_process_alone(
    database: Database, start_worker: StartWorker, worker_env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "metrics"
    worker_env |= {
        "TEST_SPANS": str(tmp_path / "spans"),
        "TEST_EVENTS": str(tmp_path / "events"),
        "TEST_METRICS": str(file),
    }
    worker = start_worker(
        awa={
            "IMPORTS": ["tests.handlers", "tests.integrations.exporting"],
            "MIDDLEWARE": ["awa_django.integrations.opentelemetry.tracing"],
        },
    )
    handlers.record.enqueue(1)
    wait_until(
        lambda: {"awa.queue.runnable", "messaging.process.duration"} <= observed(file).keys(),
        message=lambda: f"{observed(file)}\n{worker.text()}",
    )
    assert worker.stop() == 0
    found = observed(file)
    assert found["awa.queue.runnable"] == found["awa.leader"] == {worker.pid}
    assert worker.pid not in found["messaging.process.duration"]
