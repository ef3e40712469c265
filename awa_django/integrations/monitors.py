"""Monitors: each fire of a schedule is a check-in of a cron monitor of Sentry's, from its first attempt to
the end of its job. docs/sentry.md."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

import sentry_sdk
from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware
from sentry_sdk.crons import MonitorStatus, capture_checkin

from awa_django import registry
from awa_django.context import JobContext
from awa_django.cron import MACROS
from awa_django.errors import ConfigurationError
from awa_django.integrations.ends import is_withdrawn, judged
from awa_django.outcomes import RetryAfter, Snooze

# What the child process waits for at its end, in seconds: until what it has for Sentry is sent.
FLUSH_WITHIN = 5.0
# Of a monitor's slug, by Sentry.
LONGEST_SLUG = 50
_IDS = uuid.UUID("7d0a5f6e-0b1c-5a54-9d43-2f0f6f2f1c67")


class MonitorOptions(TypedDict, total=False):
    """What a monitor is told beside its schedule, in Sentry's words; both times are in minutes."""

    checkin_margin: int
    max_runtime: int
    failure_issue_threshold: int
    recovery_threshold: int
    owner: str


def monitors(
    schedules: Mapping[str, MonitorOptions | None] | None = None, /, **options: Unpack[MonitorOptions]
) -> Callable[[Callable[[JobContext], Any]], Callable[[JobContext], Any]]:
    """Middleware that checks in with Sentry for each fire of a schedule, with these options for all.

    ``schedules``: by the name of a schedule, options of its own that come first; None leaves it out.
    Raises: ConfigurationError for an option that Sentry does not know.
    """
    own = dict(schedules or {})
    for given in (options, *own.values()):
        unknown = sorted((given or {}).keys() - MonitorOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(sorted(MonitorOptions.__annotations__))
            raise ConfigurationError(f"a monitor has no option {unknown[0]!r}: there are {known}")

    def configure(name: str) -> dict[str, object] | None:
        of_its_own = own.get(name, {})
        return None if of_its_own is None else {**options, **of_its_own}

    @sync_and_async_middleware
    def monitoring(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        if iscoroutinefunction(run):

            async def monitored_async(context: JobContext) -> Any:
                with _checked_in(context, configure) as ends:
                    ends.value = await run(context)
                return ends.value

            return monitored_async

        def monitored(context: JobContext) -> Any:
            with _checked_in(context, configure) as ends:
                ends.value = run(context)
            return ends.value

        return monitored

    monitoring.stopping = flush  # type: ignore[attr-defined]
    return monitoring


def flush() -> None:
    """Send what is not yet sent: ``atexit`` knows nothing of before a worker's process was forked."""
    sentry_sdk.flush(FLUSH_WITHIN)


def slug(name: str) -> str:
    """The slug of the monitor of the schedule of this name, which Sentry takes as it is."""
    text = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if 0 < len(text) <= LONGEST_SLUG and not text.isdigit():
        return text
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{text[: LONGEST_SLUG - 1 - len(mark)].strip('-') or 'schedule'}-{mark}"


class _Ends:
    """How a run ends: what its handler returned."""

    value: Any = None


@contextmanager
def _checked_in(context: JobContext, configure: Callable[[str], dict[str, object] | None]) -> Iterator[_Ends]:
    ends = _Ends()
    fire = context.metadata.get("awa:cron")
    monitor = None
    # What somebody ran by hand has no time: it is no fire, and must not stand for one that was missed.
    if isinstance(fire, dict) and "fire_at" in fire and sentry_sdk.get_client().is_active():
        name = str(fire.get("name"))
        monitor = _monitor(name, configure(name))
    if monitor is None:
        yield ends
        return
    check_in = partial(capture_checkin, check_in_id=_id(context, str(fire)), **monitor)
    if context.attempt == 1:  # that of a later one would put off the end of max_runtime
        check_in(status=MonitorStatus.IN_PROGRESS)
    try:
        yield ends
    except BaseException as exc:
        end = judged(context, exc)
        if end != "retried" and not is_withdrawn(context):
            check_in(status=MonitorStatus.ERROR if end == "failed" else MonitorStatus.OK)
        raise
    if isinstance(ends.value, Snooze) or is_withdrawn(context):
        return
    if not isinstance(ends.value, RetryAfter):
        check_in(status=MonitorStatus.OK)
    elif context.attempt >= context.max_attempts:
        check_in(status=MonitorStatus.ERROR)


def _monitor(name: str, options: Mapping[str, object] | None) -> dict[str, Any] | None:
    """Which monitor the schedule has, and how it is to be; None: it has none."""
    if options is None:
        return None
    periodic = next((each for each in registry.periodic_jobs() if each.name == name), None)
    if periodic is None:  # somebody wrote its row by hand, and has to make the monitor by hand
        return {"monitor_slug": slug(name)}
    crontab = _crontab(periodic.cron_expr)
    if crontab is None:
        return None
    config = {
        "schedule": {"type": "crontab", "value": crontab},
        "timezone": periodic.timezone,
        **options,
    }
    return {"monitor_slug": slug(name), "monitor_config": config}


def _id(context: JobContext, fire: str) -> str:
    """The same for all attempts of a job, whichever processes make them."""
    environment = sentry_sdk.get_client().options.get("environment")
    return uuid.uuid5(_IDS, f"{environment} {fire} {context.job_id}").hex


def _crontab(expr: str) -> str | None:
    """The expression in five fields; None where it needs the seconds, of which Sentry knows nothing."""
    fields = MACROS.get(expr.strip().lower(), expr).split()
    if len(fields) == 6:
        second, *fields = fields
        if not second.isdigit():
            return None
    return " ".join(fields)


monitor_schedules = monitors()
