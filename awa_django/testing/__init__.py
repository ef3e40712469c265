"""For your own tests: what was enqueued, and running it, on the test's own connection.

Everything works inside a plain ``TestCase``: jobs are claimed and run for real, with the worker's
own code, in the transaction of the test.
"""

from __future__ import annotations

from awa_django.testing.assertions import assert_enqueued, capture_jobs, enqueued_jobs, refute_enqueued
from awa_django.testing.flush import flush_queue
from awa_django.testing.inlining import inline
from awa_django.testing.running import Run, drain, run_job

__all__ = [
    "Run",
    "assert_enqueued",
    "capture_jobs",
    "drain",
    "enqueued_jobs",
    "flush_queue",
    "inline",
    "refute_enqueued",
    "run_job",
]
