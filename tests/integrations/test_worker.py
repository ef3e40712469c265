"""A real worker with OpenTelemetry and Sentry: what it has to tell is told before its process ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import handlers
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
