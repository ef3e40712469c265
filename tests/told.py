"""Receivers and middleware that tests have in real worker processes. They leave effects, as handlers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import connection
from django.dispatch import receiver
from django.utils.decorators import sync_and_async_middleware

from awa_django import JobContext
from awa_django.signals import EndedRun, job_completed, job_failed, job_retried
from tests.handlers import effect


@receiver([job_completed, job_failed, job_retried])
def note(run: EndedRun, **_: object) -> None:
    """Leave what is told, and what the table says at that moment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT state::text FROM awa.jobs WHERE id = %s", [run.job_id])
        [(state,)] = cursor.fetchall()
    effect(f"told {run.how} of a job that is {state}", run.attempt)


@receiver(job_completed)
def stumble(**_: object) -> None:
    raise RuntimeError("a receiver stumbles")


@sync_and_async_middleware
def noted(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    if iscoroutinefunction(run):

        async def link_async(context: JobContext) -> Any:
            await sync_to_async(effect)(f"round {context.kind}", context.attempt)
            return await run(context)

        return link_async

    def link(context: JobContext) -> Any:
        effect(f"round {context.kind}", context.attempt)
        return run(context)

    return link
