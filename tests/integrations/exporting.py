"""Imported by a worker process of the tests: its spans go into the file that ``TEST_SPANS`` names."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

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
