"""What the page of one job shows: why it waits, its progress, its timeline, exact JSON, its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import F, Func, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce, Left, Length
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from awa_django.admin.base import distance, show_date, show_state
from awa_django.admin.limits import limit_by_a_row
from awa_django.admin.timeline import DATE, timeline
from awa_django.admin.words import state_name
from awa_django.job_secrets import find_job_secrets
from awa_django.models import UniqueClaim
from awa_django.models.fields import TextArrayField, decode_json
from awa_django.redaction import LONGEST_SHOWN, MASKED_KEY, Secrets, mask_text, pretty_json
from awa_django.states import DEFERRED_STATES, TERMINAL_STATES, JobState
from awa_django.why import explain

LOG_ENTRIES_SHOWN = 20
# The log of the admin has no index by object: so many of its newest entries are looked through.
LOG_WINDOW = 50_000
DATA = ("args", "progress", "result", "metadata")
# How often a page asks again, in seconds: a job that is about to move, and one that waits for long.
SOON, LATER = 2, 15
SOON_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run last reported: ``rest`` is what is neither a percentage nor a message, as JSON."""

    percent: float | None
    message: str
    rest: str


def find(model: Any, job_id: int) -> Any:
    """The job with its data as text, each value cut to what a page can show; None when it is not there."""
    columns: dict[str, Any] = {}
    for name in DATA:
        columns[f"{name}_text"] = Left(Cast(name, TextField()), LONGEST_SHOWN)
        columns[f"{name}_length"] = Length(Cast(name, TextField()))
    columns["secret_text"] = Func(
        F("metadata"), Value(MASKED_KEY), template="(%(expressions)s)::text", arg_joiner=" -> ",
        output_field=TextField(),
    )  # fmt: skip
    columns["checkpoint_text"] = Left(
        Func(
            F("progress"),
            template="jsonb_build_object('checkpoint', %(expressions)s -> 'checkpoint')::text",
            output_field=TextField(),
        ),
        LONGEST_SHOWN,
    )
    columns["limit"] = limit_by_a_row()
    columns["holder_id"] = Subquery(
        UniqueClaim.objects.filter(unique_key=OuterRef("unique_key")).values("job_id")[:1]
    )
    errors = Func(F("errors"), template="(%(expressions)s)::text[]", output_field=TextArrayField())
    return (
        model.objects.filter(pk=job_id).defer("errors", *DATA).annotate(errors_text=errors, **columns).first()
    )


def log_of(job: Any, content_type: ContentType) -> QuerySet[LogEntry]:
    """What was done to the job in the admin, newest first, as far as it is among the newest entries.

    The type of an entry is compared in a way that has no index: else all entries of jobs would be read.
    """
    oldest = LogEntry.objects.order_by("-pk").values("pk")[LOG_WINDOW : LOG_WINDOW + 1]
    return (
        LogEntry.objects.filter(pk__gt=Coalesce(Subquery(oldest), 0), object_id=str(job.pk))
        .alias(type_id=F("content_type_id") + 0)
        .filter(type_id=content_type.pk)
        .select_related("user")
        .order_by("-pk")[:LOG_ENTRIES_SHOWN]
    )


def context(job: Any, log: Iterable[LogEntry], request: HttpRequest, *, site_name: str) -> dict[str, Any]:
    """The template's variables; ``log`` is what was done to the job in the admin."""
    secrets = find_job_secrets(job.kind, job.args_text, job.secret_text)
    has_ended = job.state in TERMINAL_STATES
    return {
        "job": job,
        "state": show_state(job.state),
        "has_ended": has_ended,
        "refresh": _refresh(job),
        "reasons": [] if has_ended else _reasons(job, request, site_name),
        "progress": _progress(job, secrets),
        "facts": _facts(job),
        "instants": [
            (label, show_date(getattr(job, name), DATE), distance(getattr(job, name)))
            for label, name in (
                (_("Created"), "created_at"),
                (_("Run at"), "run_at"),
                (_("Attempted"), "attempted_at"),
                (_("Heartbeat"), "heartbeat_at"),
                (_("Deadline"), "deadline_at"),
                (_("Finalized"), "finalized_at"),
            )
            if getattr(job, name) is not None
        ],
        "blocks": [
            (label, _json_of(job, name, secrets))
            for label, name in (
                (_("Arguments"), "args"),
                (_("Result"), "result"),
                (_("Metadata"), "metadata"),
            )
            if getattr(job, f"{name}_text") not in (None, "{}") or name == "args"
        ],
        "timeline": timeline(job, log, secrets),
        "key": _key(job, request, site_name),
        "places": _places(job, request, site_name),
    }


def _refresh(job: Any) -> int:
    if job.state in TERMINAL_STATES:
        return 0
    is_far = job.state in DEFERRED_STATES and job.run_at - timezone.now() > SOON_WITHIN
    return LATER if is_far or job.state == JobState.WAITING_EXTERNAL else SOON


def _reasons(job: Any, request: HttpRequest, site_name: str) -> list[dict[str, Any]]:
    may_look = request.user.has_perm("awa.view_job")
    return [
        {
            "code": reason.code,
            "text": reason.text,
            "advice": reason.advice,
            "job_id": reason.job_id,
            "url": reverse("admin:awa_job_change", args=[reason.job_id], current_app=site_name)
            if reason.job_id is not None and may_look
            else "",
        }
        for reason in explain(job.pk)
    ]


def _progress(job: Any, secrets: Secrets) -> Progress | None:
    if job.progress_text in (None, "{}"):
        return None
    told = decode_json(job.progress_text)
    shown = _json_of(job, "progress", secrets)
    if not isinstance(told, dict):
        return Progress(None, "", shown)
    percent, message = told.get("percent"), told.get("message", "")
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        percent = None
    is_ours = isinstance(message, str) and (percent is not None) == ("percent" in told)
    if not is_ours or told.keys() - {"percent", "message", "checkpoint"}:
        rest = shown
    else:
        rest = pretty_json(job.checkpoint_text, secrets=secrets) if "checkpoint" in told else ""
    return Progress(percent, mask_text(message, secrets) if isinstance(message, str) else "", rest)


def _json_of(job: Any, name: str, secrets: Secrets) -> str:
    return pretty_json(getattr(job, f"{name}_text"), length=getattr(job, f"{name}_length"), secrets=secrets)


def _facts(job: Any) -> list[tuple[str, Any]]:
    facts = [
        (_("Kind"), job.kind),
        (_("Queue"), job.queue),
        (_("Priority"), job.priority),
        (_("Attempts"), _("%(n)s of %(of)s") % {"n": job.attempt, "of": job.max_attempts}),
        (_("Claims (run lease)"), job.run_lease),
        (_("Worker"), job.worker),
        (_("Tags"), ", ".join(job.tags)),
    ]
    return [(label, value) for label, value in facts if value not in (None, "")]


def _key(job: Any, request: HttpRequest, site_name: str) -> dict[str, Any] | None:
    if job.unique_key is None:
        return None
    mask = job.unique_states or ""
    holder_id = job.holder_id
    link = None
    if holder_id is not None and holder_id != job.pk and request.user.has_perm("awa.view_job"):
        link = reverse("admin:awa_job_change", args=[holder_id], current_app=site_name)
    return {
        "hex": bytes(job.unique_key).hex(),
        "states": ", ".join(
            state_name(state) for state, bit in zip(JobState, mask, strict=False) if bit == "1"
        ),
        "holder_id": holder_id,
        "is_holder": holder_id == job.pk,
        "holder_url": link,
    }


def _places(job: Any, request: HttpRequest, site_name: str) -> list[tuple[str, str]]:
    """The other pages of this job, as far as the user may see them."""
    table = "deferredjob" if job.state in DEFERRED_STATES else "hotjob"
    names = {
        "hotjob": _("Among hot jobs"),
        "deferredjob": _("Among deferred jobs"),
        "job": _("Among all jobs"),
    }
    return [
        (names[name], reverse(f"admin:awa_{name}_change", args=[job.pk], current_app=site_name))
        for name in (table, "job")
        if name != job._meta.model_name and request.user.has_perm(f"awa.view_{name}")
    ]
