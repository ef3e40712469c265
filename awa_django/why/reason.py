"""What an answer is made of: a reason, and how it tells instants and errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _

from awa_django.durations import spell
from awa_django.job_secrets import find_job_secrets
from awa_django.redaction import mask_text
from awa_django.storage.why import JobFacts

LONGEST_ERROR = 700


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a job from running, or what became of it."""

    code: str
    """For scripts: one word, the same in every language."""
    text: str
    advice: str = ""
    """What to do about it; empty when there is nothing to do but wait."""
    job_id: int | None = None
    """Another job that is concerned, as the holder of the unique key."""


def tell_instant(job: JobFacts, instant: datetime | None) -> str:
    """An instant with its distance: ``2026-05-01 09:30:00 UTC (in 2 d 3 h)``."""
    if instant is None:
        return "?"
    distance = instant - job.now
    told = (_("in {span}") if distance > timedelta() else _("{span} ago")).format(span=spell(abs(distance)))
    local = timezone.localtime(instant)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()} ({told})"


def tell_error(job: JobFacts) -> str:
    """What the newest entry of its history says, on one line and with its secrets masked."""
    parts = [part for part in (job.class_name, job.error) if part]
    if not parts:
        return _("no error was kept")
    secrets = find_job_secrets(job.kind, job.args or "", job.masked)
    # Cut when it is masked: of a secret that is cut in two, the first part would be shown.
    return " ".join(mask_text(": ".join(parts), secrets).split())[:LONGEST_ERROR]
