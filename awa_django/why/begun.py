"""A job that has begun: it runs, or has ended, and how."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from awa_django.conf import get_settings
from awa_django.durations import spell
from awa_django.states import JobState
from awa_django.storage.why import JobFacts
from awa_django.why.reason import Reason, tell_error, tell_instant


def explain_end(job: JobFacts) -> Reason:
    when = tell_instant(job, job.finalized_at)
    error = tell_error(job)
    if job.state == JobState.COMPLETED:
        text = _("It has run: completed {when}.").format(when=when)
        if job.finalized_at and job.attempted_at:
            took = spell(job.finalized_at - job.attempted_at)
            text = _("It has run: completed {when}, after {span}.").format(when=when, span=took)
        return Reason("completed", text)
    again = _(
        "Retry it when the cause is gone; it gets all its attempts again: manage.py awa_jobs retry {id}"
    ).format(id=job.id)
    outcome = job.outcome_of_end
    if outcome == "superseded":
        text = _("It ended {when} because another job holds its unique key.").format(when=when)
        advice = _("The other job does the work. Retry this one when that has ended.")
        return Reason("superseded", text, advice, None if job.holder_id == job.id else job.holder_id)
    if outcome == "unwritable":
        text = _("The database refuses its row, so it was put aside {when}: {error}").format(
            when=when, error=error
        )
        return Reason("quarantined", text, _("A trigger, a check or a value of the row: mend it and retry."))
    if outcome == "expired":
        return Reason("expired", _("It was too old to begin {when}: {error}").format(when=when, error=error))
    if job.state == JobState.CANCELLED:
        code = "discarded" if outcome == "discarded" else "cancelled"
        text = _("It was cancelled {when}.").format(when=when)
        if job.ended_by and outcome == "cancelled":
            text = _("It was cancelled {when} by {name}.").format(when=when, name=job.ended_by)
        elif outcome == "discarded":
            text = _("Its exception is one to discard, so it ended {when}: {error}").format(
                when=when, error=error
            )
        return Reason(code, text, _("Retry it if it shall run after all."))
    if job.attempt >= job.max_attempts:
        text = ngettext(
            "It failed {when} and its {count} attempt is used up: {error}",
            "It failed {when} and all {count} attempts are used up: {error}",
            job.max_attempts,
        ).format(when=when, count=job.max_attempts, error=error)
        return Reason("attempts_used_up", text, again)
    text = _("It failed for good {when}, in attempt {attempt} of {most}: {error}").format(
        when=when, attempt=job.attempt, most=job.max_attempts, error=error
    )
    return Reason("failed", text, again)


def explain_run(job: JobFacts) -> Iterator[Reason]:
    rescue = _rescue_advice(job)
    if job.deadline_at and job.deadline_at < job.now:
        yield Reason(
            "overdue",
            _("It runs past its deadline, which was {when}.").format(when=tell_instant(job, job.deadline_at)),
            rescue,
        )
    stale_after = get_settings().stale_after
    if job.heartbeat_at is None or job.now - job.heartbeat_at > stale_after:
        text = _("Its worker {worker} is silent: it never had a heartbeat.")
        if job.heartbeat_at is not None:
            text = _("Its worker {worker} is silent: its last heartbeat was {when}.")
        text = text.format(worker=job.worker or "?", when=tell_instant(job, job.heartbeat_at))
        yield Reason("silent", text, rescue)
    yield Reason(
        "running",
        _("It runs, attempt {attempt} of {most}, on {worker} since {when}.").format(
            attempt=job.attempt,
            most=job.max_attempts,
            worker=job.worker or "?",
            when=tell_instant(job, job.attempted_at),
        ),
    )


def _rescue_advice(job: JobFacts) -> str:
    if "rescue" in job.duties:
        return _("It is taken back within a minute, and goes through the check of its attempts.")
    return _("Nobody takes lost runs back now, as no worker is running: start one.")
