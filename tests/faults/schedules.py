"""Rows of schedules, and what they have fired."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection


def execute(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description else []


def schedule(
    name: str, expr: str = "* * * * *", since: str = "now() - interval '1 hour'", **more: str
) -> None:
    columns = {"name": name, "cron_expr": expr, "kind": "tests.cron", "queue": "cron", **more}
    execute(
        f"INSERT INTO awa.cron_jobs ({', '.join(columns)}, last_enqueued_at) "
        f"VALUES ({', '.join(['%s'] * len(columns))}, {since})",
        *columns.values(),
    )


def fires(name: str) -> list[datetime]:
    return [
        fire
        for (fire,) in execute(
            "SELECT (metadata #>> '{awa:cron,fire_at}')::timestamptz FROM awa.jobs_hot "
            "WHERE metadata #>> '{awa:cron,name}' = %s ORDER BY id",
            name,
        )
    ]
