"""What stands round a job in these tests, and how they ask why it has not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from awa_django import job, registry
from awa_django.why import Reason, explain

KEY = bytes(range(16))
PAST = "now() - interval '1 hour'"


def run_sql(text: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, params)


def add_worker(
    name: str = "w/1",
    *,
    queue: str = "default",
    seen: str = "now()",
    draining: bool = False,
    concurrency: int = 2,
    supervisor: str | None = "w",
) -> None:
    run_sql(
        "INSERT INTO awa.runtime_instances (name, supervisor, hostname, pid, version, queues, concurrency, "
        f"draining, last_seen_at) VALUES (%s, %s, 'h', 1, '0', %s, %s, %s, {seen})",
        name, supervisor, [queue], concurrency, draining,
    )  # fmt: skip


@contextmanager
def declared(kind: str, **options: Any) -> Iterator[None]:
    """This process knows the kind."""

    def handler() -> None:
        pass

    made = job(kind=kind, **options)(handler)
    try:
        yield
    finally:
        registry.unregister(made.handler)


def codes(job_id: int) -> list[str]:
    return [reason.code for reason in explain(job_id)]


def only(job_id: int) -> Reason:
    [reason] = explain(job_id)
    return reason


def behind(count: int) -> None:
    run_sql(
        "INSERT INTO awa.jobs_hot (kind, run_at) SELECT 'tests.job', now() - interval '2 h' "
        "FROM generate_series(1, %s)",
        count,
    )
