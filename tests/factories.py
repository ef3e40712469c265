"""Rows of jobs as tests need them, in any state, with what that state demands."""

from __future__ import annotations

from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

DEFERRED = ("scheduled", "retryable")
TERMINAL = ("completed", "failed", "cancelled")


def insert_job(state: str = "available", **columns: Any) -> int:
    """Insert a row on Django's connection; its id. A dict becomes jsonb, a list of dicts jsonb[].

    What is not given fits the state: a running job has a lease and a heartbeat, an ended one has
    ended, a deferred one is due in an hour.
    """
    values: dict[str, Any] = {"kind": "tests.job", "state": state}
    if state == "running":
        values |= {"attempt": 1, "run_lease": 1, "worker": "tests-worker"}
    values |= {name: _adapt(value) for name, value in columns.items()}
    expressions = dict.fromkeys(values, "%s")
    if state == "running":
        for name in ("heartbeat_at", "attempted_at"):
            expressions.setdefault(name, "now()")
    elif state in TERMINAL:
        expressions.setdefault("finalized_at", "now()")
    elif state in DEFERRED:
        expressions.setdefault("run_at", "now() + interval '1 hour'")
    table = "awa.scheduled_jobs" if state in DEFERRED else "awa.jobs_hot"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(expressions)}) VALUES ({', '.join(expressions.values())}) "
            "RETURNING id",
            list(values.values()),
        )
        job_id: int = cursor.fetchone()[0]
        return job_id


def _adapt(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [Jsonb(item) for item in value]
    return value
