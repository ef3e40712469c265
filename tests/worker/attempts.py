"""Attempts of jobs that nobody has claimed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from awa_django.jobs.job import Job
from awa_django.storage.rows import ClaimedJob, Deferral, Ending, Outcome
from awa_django.worker.attempt import run_attempt, run_attempt_async

W = "w/1"


def claimed(args: str = "{}", **columns: Any) -> ClaimedJob:
    values: dict[str, Any] = {
        "id": 5, "run_lease": 9, "kind": "k", "queue": "q", "attempt": 1, "max_attempts": 3,
        "args": args, "metadata": None, "progress": None,
    }  # fmt: skip
    return ClaimedJob(**{**values, **columns})


def run(declared: Job[Any, Any], given: ClaimedJob, **options: Any) -> Outcome | None:
    return run_attempt(given, declared.handler, worker=W, **options)


def run_async(declared: Job[Any, Any], given: ClaimedJob, **options: Any) -> Outcome | None:
    return asyncio.run(run_attempt_async(given, declared.handler, worker=W, **options))


def entry(outcome: Outcome | None) -> dict[str, Any]:
    assert isinstance(outcome, (Deferral, Ending))
    assert outcome.entry is not None
    read: dict[str, Any] = json.loads(outcome.entry)
    return read
