"""Rows of jobs as tests need them, in any state, with what that state demands."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

DEFERRED = ("scheduled", "retryable")
TERMINAL = ("completed", "failed", "cancelled")
TABLES = ("awa.jobs_hot", "awa.scheduled_jobs")


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


def update_job(job_id: int, **expressions: str) -> None:
    """Set columns of a row, each to an SQL expression, whatever the engine would say to it.

    In one statement, as ``reload_job`` reads: a worker may move the row between two of them.
    """
    assignments = ", ".join(f"{name} = {expression}" for name, expression in expressions.items())
    hot, deferred = (f"UPDATE {table} SET {assignments} WHERE id = %s" for table in TABLES)
    with connection.cursor() as cursor:
        cursor.execute(f"WITH hot AS ({hot}) {deferred}", [job_id, job_id])


def reload_job(job_id: int) -> Any:
    """The row as it is now, with ``table`` naming its home and JSON decoded; None when it is gone."""
    reads = (f"SELECT '{table}' AS \"table\", * FROM {table} WHERE id = %s" for table in TABLES)
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(reads), [job_id, job_id])
        names = [column.name for column in cursor.description]
        found = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor]
    assert len(found) <= 1, f"job {job_id} is in both tables"
    for job in found:
        for name in ("args", "metadata", "progress", "result"):
            text = getattr(job, name)
            setattr(job, name, None if text is None else json.loads(text))
        job.errors = [json.loads(entry) for entry in job.errors if isinstance(entry, str)]
    return found[0] if found else None


def _adapt(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [Jsonb(item) for item in value]
    return value
