"""Unique jobs of every kind, and what tests ask of their keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connection

from awa_django import Unique, job


@job(kind="tests.unique.sync", unique=Unique(args=True))
def sync(account: int, full: bool = False) -> None: ...


@job(kind="tests.unique.by_account", unique=Unique(args=("account",)))
def by_account(account: int, full: bool = False) -> None: ...


@job(kind="tests.unique.strict", unique=Unique(args=True, on_conflict="raise"))
def strict(account: int) -> None: ...


@job(kind="tests.unique.hourly", unique=Unique(period=timedelta(hours=1)))
def hourly() -> None: ...


@job(kind="tests.unique.per_queue", unique=Unique(queue=True))
def per_queue() -> None: ...


@job(kind="tests.unique.latest", unique=Unique(args=("account",), on_conflict="replace"))
def latest(account: int, page: int = 0) -> None: ...


@job(kind="tests.unique.debounced", unique=Unique(args=("account",), on_conflict="replace_and_reschedule"))
def debounced(account: int, page: int) -> None: ...


@job(kind="tests.unique.by_mail", unique=Unique(args=lambda args: str(args["to"]).lower()))
def by_mail(to: str, subject: str = "hello") -> None: ...


@job(kind="tests.unique.plain")
def plain(number: float) -> None: ...


def run(query: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return cursor.fetchall() if cursor.description else []


def job_count() -> int:
    return int(
        run("SELECT (SELECT count(*) FROM awa.jobs_hot) + (SELECT count(*) FROM awa.scheduled_jobs)")[0][0]
    )


def assert_claims_match() -> None:
    """Each claim has its job and each job in a holding state its claim (the bijection of keys)."""
    claims = run("SELECT unique_key, job_id FROM awa.job_unique_claims ORDER BY 2")
    holders = run(
        """
        SELECT unique_key, id FROM (
            SELECT * FROM awa.jobs_hot UNION ALL SELECT * FROM awa.scheduled_jobs
        ) AS job
        WHERE awa.holds_unique_key(state, unique_key, unique_states) ORDER BY 2
        """
    )
    assert claims == holders
