"""System checks of ``manage.py check --deploy``: settings that work, and that one regrets in production."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, register

from awa_django import registry
from awa_django.conf import get_settings


@register("awa", deploy=True)
def check_deployment(**_: Any) -> list[CheckMessage]:
    """What is slow or risky of the settings and of the declared kinds. Opens no connection."""
    return list(_messages())


def _messages() -> Iterator[CheckMessage]:
    configured = get_settings()
    database = settings.DATABASES.get(configured.database, {})
    max_age = database.get("CONN_MAX_AGE", 0)
    pool = database.get("OPTIONS", {}).get("pool")
    if max_age == 0 and not pool:
        yield checks.Warning(
            f"CONN_MAX_AGE of the alias {configured.database!r} is 0: each job that uses the database opens "
            "a connection, which costs more than most jobs.",
            hint='Set "CONN_MAX_AGE": 60 and "CONN_HEALTH_CHECKS": True, or OPTIONS["pool"].',
            id="awa.W020",
        )
    if (max_age != 0 or pool) and not database.get("CONN_HEALTH_CHECKS"):
        yield checks.Warning(
            f"CONN_HEALTH_CHECKS of the alias {configured.database!r} is off: after a restart of the "
            "database a job fails for each connection that was kept.",
            hint='Set "CONN_HEALTH_CHECKS": True.',
            id="awa.W021",
        )
    if configured.listen_url and not database.get("DISABLE_SERVER_SIDE_CURSORS"):
        yield checks.Warning(
            "AWA['LISTEN_URL'] leads past a transaction pooler, through which iterator() fails.",
            hint=f'Set "DISABLE_SERVER_SIDE_CURSORS": True for the alias {configured.database!r}.',
            id="awa.W022",
        )
    unbounded = [handler.kind for handler in registry.handlers() if handler.timeout is None]
    if unbounded:
        yield checks.Warning(
            f"{len(unbounded)} kinds have no timeout, {unbounded[0]!r} for one: a handler that hangs keeps "
            "its place in the worker for ever.",
            hint="Set AWA['TIMEOUT'], or @job(timeout=...).",
            id="awa.W023",
        )
    if not configured.retention.by_state["failed"]:
        yield checks.Warning(
            "AWA['RETENTION']['failed'] is 0: a job that fails is deleted at once, and nobody sees why.",
            hint="Keep failed jobs for some days.",
            id="awa.W024",
        )
    if configured.inline:
        yield checks.Warning(
            f"AWA['INLINE'] is {configured.inline!r}: each job runs where it is enqueued, as in tests.",
            hint="Leave it out, and run `manage.py awa_worker`.",
            id="awa.W025",
        )
