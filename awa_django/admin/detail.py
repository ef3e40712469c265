"""What the page of one job shows: exact JSON, errors newest first, the key and its holder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Func, TextField, Value
from django.db.models.functions import Cast, Left, Length
from django.http import HttpRequest
from django.urls import reverse

from awa_django.admin.base import distance, show_date, show_state
from awa_django.models import UniqueClaim
from awa_django.models.fields import TextArrayField, UndecodedJSON, decode_json
from awa_django.redaction import LONGEST_SHOWN, NO_SECRETS, Secrets, find_secrets, mask_text, pretty_json
from awa_django.registry import MASKED_KEY, secret_names
from awa_django.states import DEFERRED_STATES, JobState

ERRORS_SHOWN = 50
LOG_ENTRIES_SHOWN = 20
# The keys of an error entry that have a place of their own on the page.
ENTRY_KEYS = ("error", "traceback", "class", "outcome", "attempt", "run_lease", "at", "worker", "by")
DATA = ("args", "progress", "result", "metadata")


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """An ended attempt, as it is shown."""

    outcome: str
    attempt: str
    at: str
    who: str
    class_name: str
    message: str
    traceback: str
    others: str


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
    errors = Func(F("errors"), template="(%(expressions)s)::text[]", output_field=TextArrayField())
    return (
        model.objects.filter(pk=job_id).defer("errors", *DATA).annotate(errors_text=errors, **columns).first()
    )


def context(job: Any, request: HttpRequest, *, site_name: str) -> dict[str, Any]:
    """The template's variables."""
    secrets = find_secrets(job.args_text, secret_names(job.kind, job.secret_text))
    return {
        "job": job,
        "state": show_state(job.state),
        "facts": _facts(job),
        "instants": [
            (label, show_date(getattr(job, name), "Y-m-d H:i:s"), distance(getattr(job, name)))
            for label, name in (
                ("Created", "created_at"),
                ("Run at", "run_at"),
                ("Attempted", "attempted_at"),
                ("Heartbeat", "heartbeat_at"),
                ("Deadline", "deadline_at"),
                ("Finalized", "finalized_at"),
            )
            if getattr(job, name) is not None
        ],
        "blocks": [
            (name.capitalize() if name != "args" else "Arguments", _json_of(job, name, secrets))
            for name in DATA
            if getattr(job, f"{name}_text") not in (None, "{}") or name == "args"
        ],
        "errors": [read_entry(text, secrets) for text in list(reversed(job.errors_text))[:ERRORS_SHOWN]],
        "hidden_errors": max(0, len(job.errors_text) - ERRORS_SHOWN),
        "key": _key(job, request, site_name),
        "places": _places(job, request, site_name),
    }


def read_entry(text: str, secrets: Secrets = NO_SECRETS) -> ErrorEntry:
    """An element of ``errors``, whatever somebody else may have put there."""
    entry = decode_json(text)
    if isinstance(entry, UndecodedJSON) or not isinstance(entry, dict):
        return ErrorEntry("", "", "", "", "", "", "", pretty_json(text, secrets=secrets))
    others = {key: value for key, value in entry.items() if key not in ENTRY_KEYS}
    return ErrorEntry(
        outcome=_text(entry.get("outcome"), secrets),
        attempt=_text(entry.get("attempt"), secrets),
        at=_when(entry.get("at"), secrets),
        who=_text(entry.get("by") or entry.get("worker"), secrets),
        class_name=_text(entry.get("class"), secrets),
        message=_text(entry.get("error"), secrets)[:LONGEST_SHOWN],
        traceback=_text(entry.get("traceback"), secrets)[:LONGEST_SHOWN],
        others=pretty_json(json.dumps(others, ensure_ascii=False), secrets=secrets) if others else "",
    )


def _text(value: object, secrets: Secrets) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return mask_text(value, secrets)
    return pretty_json(json.dumps(value, ensure_ascii=False), secrets=secrets)


def _when(value: object, secrets: Secrets) -> str:
    """The instant of an entry; what is none is shown as it stands."""
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value)
            if instant.utcoffset() is not None:
                return show_date(instant, "Y-m-d H:i:s")
        except (ValueError, OverflowError):
            pass
    return _text(value, secrets)


def _json_of(job: Any, name: str, secrets: Secrets) -> str:
    return pretty_json(getattr(job, f"{name}_text"), length=getattr(job, f"{name}_length"), secrets=secrets)


def _facts(job: Any) -> list[tuple[str, Any]]:
    facts = [
        ("Kind", job.kind),
        ("Queue", job.queue),
        ("Priority", job.priority),
        ("Attempts", f"{job.attempt} of {job.max_attempts}"),
        ("Claims (run lease)", job.run_lease),
        ("Worker", job.worker),
        ("Tags", ", ".join(job.tags)),
    ]
    return [(label, value) for label, value in facts if value not in (None, "")]


def _key(job: Any, request: HttpRequest, site_name: str) -> dict[str, Any] | None:
    if job.unique_key is None:
        return None
    mask = job.unique_states or ""
    holder_id = UniqueClaim.objects.filter(unique_key=job.unique_key).values_list("job_id", flat=True).first()
    link = None
    if holder_id is not None and holder_id != job.pk and request.user.has_perm("awa.view_job"):
        link = reverse("admin:awa_job_change", args=[holder_id], current_app=site_name)
    return {
        "hex": bytes(job.unique_key).hex(),
        "states": ", ".join(state.value for state, bit in zip(JobState, mask, strict=False) if bit == "1"),
        "holder_id": holder_id,
        "is_holder": holder_id == job.pk,
        "holder_url": link,
    }


def _places(job: Any, request: HttpRequest, site_name: str) -> list[tuple[str, str]]:
    """The other pages of this job, as far as the user may see them."""
    table = "deferredjob" if job.state in DEFERRED_STATES else "hotjob"
    names = {"hotjob": "Among hot jobs", "deferredjob": "Among deferred jobs", "job": "Among all jobs"}
    return [
        (names[name], reverse(f"admin:awa_{name}_change", args=[job.pk], current_app=site_name))
        for name in (table, "job")
        if name != job._meta.model_name and request.user.has_perm(f"awa.view_{name}")
    ]
