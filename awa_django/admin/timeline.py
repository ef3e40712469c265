"""What happened to a job and what comes next, newest first: from its row, its errors and the admin's log."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.utils.translation import gettext as _

from awa_django.admin.base import show_date
from awa_django.admin.words import outcome_name
from awa_django.durations import spell
from awa_django.models.fields import UndecodedJSON, decode_json
from awa_django.redaction import LONGEST_SHOWN, Secrets, mask_text, pretty_json
from awa_django.states import JobState
from awa_django.storage.why import SAME_MOMENT

ENTRIES_SHOWN = 50
# The keys of an error entry that have a place of their own on the page.
ENTRY_KEYS = (
    "error", "traceback", "class", "outcome", "attempt", "run_lease", "at", "attempted_at", "worker", "by"
)  # fmt: skip
DATE = "Y-m-d H:i:s"
# How the outcome of an attempt is coloured: as the state that it led to.
_TONES = {
    "retried": "retryable",
    "rescued": "retryable",
    "timed_out": "retryable",
    "failed": "failed",
    "expired": "failed",
    "unwritable": "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the timeline. What is empty is not shown."""

    title: str
    tone: str
    """The state whose colour it has."""
    at: datetime | None = None
    when: str = ""
    """``at`` as HTML; or what somebody wrote in its place."""
    spans: str = ""
    """How long it waited and took."""
    who: str = ""
    class_name: str = ""
    message: str = ""
    traceback: str = ""
    others: str = ""
    is_next: bool = False
    """It has yet to come."""
    is_open: bool = False
    """Its traceback is the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    events: list[Event]
    hidden_count: int


def timeline(job: Any, log: Iterable[LogEntry], secrets: Secrets) -> Timeline:
    """``job`` is as ``detail.find`` brings it."""
    events = [
        Event(title=_("Enqueued"), tone="scheduled", at=job.created_at, when=show_date(job.created_at, DATE))
    ]
    before = job.created_at
    texts: Sequence[str] = job.errors_text[-ENTRIES_SHOWN:]
    hidden = len(job.errors_text) - len(texts)
    for number, text in enumerate(texts):
        event, ended_at = _ended_attempt(text, before if number or not hidden else None, number, secrets)
        events.append(event)
        before = ended_at or before
    events += _present(job)
    # What has no time of its own stays behind what was before it; what is to come is the last.
    at = job.created_at
    placed = []
    for event in events:
        at = event.at or at
        placed.append((event.is_next, at, event))
    placed += [(False, entry.action_time, _logged(entry)) for entry in log]
    placed.sort(key=operator.itemgetter(0, 1))
    newest_first = [event for *_place, event in reversed(placed)]
    for place, event in enumerate(newest_first):
        if event.traceback:
            newest_first[place] = replace(event, is_open=True)
            break
    return Timeline(events=newest_first, hidden_count=hidden)


def _ended_attempt(
    text: Any, before: datetime | None, number: int, secrets: Secrets
) -> tuple[Event, datetime | None]:
    """An element of ``errors``, whatever somebody else may have put there, and when it ended."""
    entry = decode_json(text)
    if isinstance(entry, UndecodedJSON) or not isinstance(entry, dict):
        shown = pretty_json(text if isinstance(text, str) else json.dumps(text), secrets=secrets)
        return Event(title=_("An entry of another kind"), tone="unknown", others=shown), None
    others = {key: value for key, value in entry.items() if key not in ENTRY_KEYS}
    outcome = _text(entry.get("outcome"), secrets)
    attempt = _text(entry.get("attempt"), secrets)
    at, began_at = _instant(entry.get("at")), _instant(entry.get("attempted_at"))
    spans = []
    if began_at and before and began_at >= before:
        told = (
            _("began {span} after the last one ended") if number else _("began {span} after it was enqueued")
        )
        spans.append(told.format(span=spell(began_at - before)))
    if began_at and at and at >= began_at:
        spans.append(_("took {span}").format(span=spell(at - began_at)))
    if attempt and outcome:
        title = _("Attempt {number}: {outcome}").format(number=attempt, outcome=outcome_name(outcome))
    elif attempt:
        title = _("Attempt {number}").format(number=attempt)
    elif outcome:
        title = _("An attempt: {outcome}").format(outcome=outcome_name(outcome))
    else:
        title = _("An attempt")
    event = Event(
        title=title,
        tone=_TONES.get(outcome, "cancelled" if outcome else "failed"),
        at=at,
        when=show_date(at, DATE) if at else _text(entry.get("at"), secrets),
        spans=", ".join(spans),
        who=_text(entry.get("by") or entry.get("worker"), secrets),
        class_name=_text(entry.get("class"), secrets),
        message=_text(entry.get("error"), secrets)[:LONGEST_SHOWN],
        traceback=_text(entry.get("traceback"), secrets)[:LONGEST_SHOWN],
        others=pretty_json(json.dumps(others, ensure_ascii=False), secrets=secrets) if others else "",
    )
    return event, at


def _logged(entry: LogEntry) -> Event:
    return Event(
        title=str(entry.change_message),
        tone="unknown",
        at=entry.action_time,
        when=show_date(entry.action_time, DATE),
        who=entry.user.get_username(),
    )


def _present(job: Any) -> list[Event]:
    """What the row itself says of the attempt that is last, runs, or comes next."""
    attempt = max(job.attempt, 1)
    match JobState(job.state):
        case JobState.SCHEDULED | JobState.RETRYABLE | JobState.AVAILABLE:
            waits = job.state == JobState.AVAILABLE
            told = (
                _("Attempt {number} of {most}: waits for a worker")
                if waits
                else _("Attempt {number} of {most}: is due")
            )
            title = told.format(number=min(job.attempt + 1, job.max_attempts), most=job.max_attempts)
            return [_event(title, job.state, job.run_at, is_next=True)]
        case JobState.RUNNING:
            title = _("Attempt {number} of {most}: runs").format(number=attempt, most=job.max_attempts)
            return [_event(title, job.state, job.attempted_at, job=job)]
        case JobState.COMPLETED:
            title = _("Attempt {number}: completed").format(number=attempt)
            return [_event(title, job.state, job.finalized_at, job=job)]
        case JobState.FAILED | JobState.CANCELLED:
            newest = decode_json(job.errors_text[-1]) if job.errors_text else None
            at = _instant(newest.get("at")) if isinstance(newest, dict) else None
            if at is not None and abs(at - job.finalized_at) < SAME_MOMENT:
                return []  # its entry says it
            title = _("Failed") if job.state == JobState.FAILED else _("Cancelled")
            return [_event(title, job.state, job.finalized_at)]
        case _:
            return [_event(_("Waits for something outside of the queue"), job.state, job.attempted_at)]


def _event(title: str, tone: str, at: datetime | None, *, job: Any = None, is_next: bool = False) -> Event:
    """An event of the row; with ``job``, of the attempt that it tells of."""
    spans = []
    if job is not None and job.attempted_at is not None:
        if job.attempted_at >= job.run_at:
            waited = spell(job.attempted_at - job.run_at)
            spans.append(_("began {span} after it was due").format(span=waited))
        if job.finalized_at is not None and job.finalized_at >= job.attempted_at:
            spans.append(_("took {span}").format(span=spell(job.finalized_at - job.attempted_at)))
    return Event(
        title=title,
        tone=tone,
        at=at,
        when=show_date(at, DATE) if at else "",
        spans=", ".join(spans),
        who=(job.worker or "") if job is not None else "",
        is_next=is_next,
    )


def _text(value: object, secrets: Secrets) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return mask_text(value, secrets)
    return pretty_json(json.dumps(value, ensure_ascii=False), secrets=secrets)


def _instant(value: object) -> datetime | None:
    """The instant that an entry names; None for what is none, or cannot be shown."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value)
        if instant.utcoffset() is None:
            return None
        show_date(instant, DATE)  # in this time zone its year may be none
    except (ValueError, OverflowError):
        return None
    return instant
