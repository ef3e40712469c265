"""Imported by a worker's processes in the tests: its spans and its Sentry events go into the files that
``TEST_SPANS`` and ``TEST_EVENTS`` name, and its metrics into ``TEST_METRICS`` with the process's id."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import sentry_sdk
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from sentry_sdk.transport import Transport
from sentry_sdk.worker import BackgroundWorker

# As a project does it: in batches from a thread, a minute later, so that only a flush brings them.
_file = Path(os.environ["TEST_SPANS"]).open("a")  # noqa: SIM115  (the process ends with it)
_provider = TracerProvider()
_provider.add_span_processor(
    BatchSpanProcessor(
        ConsoleSpanExporter(out=_file, formatter=lambda span: span.to_json(indent=None) + "\n"),
        schedule_delay_millis=60_000,
    )
)
trace.set_tracer_provider(_provider)

if "TEST_METRICS" in os.environ:
    _exporter = ConsoleMetricExporter(
        out=Path(os.environ["TEST_METRICS"]).open("a"),  # noqa: SIM115  (as above)
        formatter=lambda data: data.to_json(indent=None) + "\n",
    )
    metrics.set_meter_provider(
        MeterProvider(
            [PeriodicExportingMetricReader(_exporter, export_interval_millis=200)],
            resource=Resource.create({"process.pid": os.getpid()}),
        )
    )


def _write(envelope: Any) -> None:
    with Path(os.environ["TEST_EVENTS"]).open("a") as file:
        file.writelines(json.dumps(item.payload.json) + "\n" for item in envelope.items)


class _Transport(Transport):
    """On the SDK's own thread, as its transport over HTTP."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._worker = BackgroundWorker()

    def capture_envelope(self, envelope: Any) -> None:
        self._worker.submit(lambda: _write(envelope))

    def flush(self, timeout: float, callback: Any = None) -> None:
        self._worker.flush(timeout, callback)


sentry_sdk.init(dsn="http://key@127.0.0.1/1", transport=_Transport)
