"""One job with all its data, for ``awa_jobs show``: numbers exact, secrets masked as in the admin."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.db.models import F, Func, TextField, Value
from django.db.models.functions import Cast
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware

from awa_django.errors import JobNotFound
from awa_django.job_secrets import find_job_secrets
from awa_django.management.output import Cell, Output, Raw, instant, number
from awa_django.models import Job, UniqueClaim
from awa_django.models.fields import TextArrayField, UndecodedJSON, decode_json
from awa_django.redaction import MASKED_KEY, Secrets, mask_text, pretty_json
from awa_django.states import JobState

DATA = ("args", "progress", "result", "metadata")
# Each with what people call it.
INSTANTS = {
    "created_at": "created",
    "run_at": "due",
    "attempted_at": "begun",
    "heartbeat_at": "heartbeat",
    "deadline_at": "deadline",
    "finalized_at": "ended",
}
NUMBERS = ("priority", "attempt", "max_attempts", "run_lease")
# The keys of an error entry that have a place of their own; the others are in ``more``.
ENTRY_KEYS = (
    *("at", "attempted_at", "attempt", "run_lease", "outcome"),
    *("class", "error", "traceback", "worker", "by"),
)
STYLES = {"failed": "bad", "cancelled": "warning", "retryable": "warning", "running": "good"}


def document(alias: str, job_id: int) -> dict[str, Any]:
    """The job as JSON. Raises: JobNotFound."""
    columns: dict[str, Any] = {f"{name}_text": Cast(name, TextField()) for name in DATA}
    columns["secret_text"] = Func(
        F("metadata"), Value(MASKED_KEY), template="(%(expressions)s)::text", arg_joiner=" -> ",
        output_field=TextField(),
    )  # fmt: skip
    errors = Func(F("errors"), template="(%(expressions)s)::text[]", output_field=TextArrayField())
    jobs: Any = Job.objects.using(alias).filter(pk=job_id).defer("errors", *DATA)
    job = jobs.annotate(errors_text=errors, **columns).first()
    if job is None:
        raise JobNotFound(job_id)
    secrets = find_job_secrets(job.kind, job.args_text, job.secret_text)
    return {
        "id": job.pk,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state,
        **{name: getattr(job, name) for name in (*NUMBERS, *INSTANTS)},
        "worker": job.worker,
        "tags": job.tags,
        **_key(alias, job),
        **{name: _data(getattr(job, f"{name}_text"), secrets) for name in DATA},
        "errors": [_entry(text, secrets) for text in reversed(job.errors_text)],
    }


def show(out: Output, job: dict[str, Any]) -> None:
    """Print what ``document`` gave, for people."""
    facts: list[tuple[str, Cell | str]] = [
        ("job", str(job["id"])),
        ("kind", job["kind"]),
        ("queue", job["queue"]),
        ("state", Cell(job["state"], STYLES.get(job["state"], ""))),  # type: ignore[arg-type]
        ("priority", number(job["priority"])),
        ("attempts", f"{job['attempt']} of {job['max_attempts']}, {_counted(job['run_lease'], 'claim')}"),
        *((label, instant(job[name])) for name, label in INSTANTS.items() if job[name] is not None),
    ]
    if job["worker"] is not None:
        facts.append(("worker", job["worker"]))
    if job["unique_key"] is not None:
        facts.append(("unique key", f"{job['unique_key']}, held by job {job['holder_id'] or 'none'}"))
    if job["tags"]:
        facts.append(("tags", ", ".join(job["tags"])))
    out.facts(facts)
    for name in DATA:
        if job[name] is not None and (name == "args" or job[name].text != "{}"):
            out.line("")
            out.line("arguments" if name == "args" else name, "head")
            out.block(job[name].text)
    for entry in job["errors"]:
        out.line("")
        _show_entry(out, entry)


def _show_entry(out: Output, entry: dict[str, Any]) -> None:
    who = entry["by"] or entry["worker"]
    known = [
        f"attempt {_text(entry['attempt'])}" if entry["attempt"] is not None else "",
        *(_text(part) for part in (entry["outcome"], _when(entry["at"]), who) if part is not None),
    ]
    out.line("error: " + ", ".join(filter(None, known)), "bad")
    for name in ("class", "error", "traceback", "more"):
        if entry[name] is not None:
            out.block(_text(entry[name]))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _when(value: object) -> object:
    """An instant of the history as the job's own are shown; what is none, as it stands there."""
    try:
        parsed = parse_datetime(value) if isinstance(value, str) else None
        return instant(parsed) if parsed is not None and is_aware(parsed) else value
    except (ValueError, OverflowError):
        return value


def _text(value: object) -> str:
    return value.text if isinstance(value, Raw) else str(value)


def _data(text: str | None, secrets: Secrets) -> Raw | None:
    return None if text is None else Raw(pretty_json(text, limit=sys.maxsize, secrets=secrets))


def _entry(text: str, secrets: Secrets) -> dict[str, Any]:
    """An element of ``errors``, whatever somebody else may have put there."""
    entry = decode_json(text)
    if isinstance(entry, UndecodedJSON) or not isinstance(entry, dict):
        return {**dict.fromkeys(ENTRY_KEYS), "more": _data(text, secrets)}
    others = {key: value for key, value in entry.items() if key not in ENTRY_KEYS}
    return {
        **{key: _masked(entry.get(key), secrets) for key in ENTRY_KEYS},
        "more": _data(json.dumps(others), secrets) if others else None,
    }


def _masked(value: object, secrets: Secrets) -> object:
    if isinstance(value, str):
        return mask_text(value, secrets)
    return None if value is None else _data(json.dumps(value), secrets)


def _key(alias: str, job: Any) -> dict[str, Any]:
    if job.unique_key is None:
        return {"unique_key": None, "unique_states": [], "holder_id": None}
    mask = zip(JobState, job.unique_states or "", strict=False)
    claims = UniqueClaim.objects.using(alias).filter(unique_key=job.unique_key)
    return {
        "unique_key": bytes(job.unique_key).hex(),
        "unique_states": [state.value for state, bit in mask if bit == "1"],
        "holder_id": claims.values_list("job_id", flat=True).first(),
    }
