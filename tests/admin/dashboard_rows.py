"""What the tests of the dashboard put into the tables, and how they look at it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django.admin.dashboard.shared import look
from awa_django.storage import dashboard as storage
from awa_django.storage.status import Processes

PAGE = "admin:awa_dashboard_changelist"
DATA = "admin:awa_dashboard_data"


def panels(client: Client) -> dict[str, str]:
    """The panels as the script gets them, without blanks between tags."""
    answer = client.get(reverse(DATA))
    assert answer.status_code == 200
    found: dict[str, str] = answer.json()["panels"]
    return {name: " ".join(html.split()) for name, html in found.items()}


def execute(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def add_worker(name: str = "box:1:a/1", queues: str = "{default}", seen: str = "0 s") -> None:
    execute(
        "INSERT INTO awa.runtime_instances "
        "(name, supervisor, hostname, pid, version, queues, concurrency, last_seen_at) "
        "VALUES (%s, 'box:1:a', 'box', 7, '1', %s::text[], 10, now() - %s::interval)",
        name, queues, seen,
    )  # fmt: skip


def add_rollup(minutes_ago: int = 1, kind: str = "shop.pay", **columns: Any) -> None:
    values = {"completed_count": 10, "wait_histogram": [0, 10], "run_histogram": [0] * 9 + [10], **columns}
    execute(
        f"INSERT INTO awa.queue_stats (minute, queue, kind, {', '.join(values)}) "
        f"VALUES (date_trunc('minute', now()) - %s * interval '1 min', 'mail', %s{', %s' * len(values)})",
        minutes_ago, kind, *values.values(),
    )  # fmt: skip


def take() -> storage.Snapshot:
    cache.clear()
    found = look().snapshot
    assert found is not None
    return found


def ago(**duration: float) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        now: datetime = cursor.fetchone()[0]
    return now - timedelta(**duration)


def empty_snapshot() -> storage.Snapshot:
    return storage.Snapshot(
        now=datetime.fromisoformat("2026-05-01T12:00:00+00:00"),
        queues=[],
        queue_cap=1,
        is_cut=False,
        processes=Processes([], [], []),
        stats=[],
        frontier=[storage.SpanRow(0)] * (len(storage.SPANS) + 1),
        schedules=[],
        tables=[],
    )
