"""Why has a job not run? Reads the same things as promotion and claim do, and says what decides."""

from __future__ import annotations

import math
import operator
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.durations import spell
from awa_django.redaction import mask_text
from awa_django.states import DEFERRED_STATES, TERMINAL_STATES, JobState
from awa_django.storage import why as storage
from awa_django.storage._sql import Connection
from awa_django.storage.why import JobFacts, QueueFacts

LARGEST_ID = 2**63 - 1
# Nobody waits for a larger number: the count reads at most so many entries of an index (some 3 ms).
COUNT_CAP = 10_000
# Promotion comes within a quarter of a second and a new leader within 6 s: what is later is behind.
PROMOTED_WITHIN = timedelta(seconds=10)
# A claim looks at least once in POLL_INTERVAL: a job that stands first for longer is not looked for.
CLAIMED_WITHIN = timedelta(seconds=30)
# As high as a put-back counts (see defer.sql).
MOST_TIMES = 1_000_000
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


def explain(job_id: int, *, using: str | None = None) -> list[Reason]:
    """Why the job has not run, the most decisive reason first; there is always one.

    At most two statements, whatever the tables hold; they read only, so a standby (``using``) answers
    too. What is ahead of the job is counted to ``COUNT_CAP``.
    """
    wanted = operator.index(job_id)
    connection = connections[using or get_settings().database]
    job = storage.why_job(connection, wanted) if 0 < wanted <= LARGEST_ID else None
    if job is None:
        return [_not_found(wanted)]
    if job.state in TERMINAL_STATES:
        return [_ended(job)]
    if job.state == JobState.RUNNING:
        return list(_running(job))
    if job.state == JobState.WAITING_EXTERNAL:
        return [Reason("waiting_external", _("It waits for something outside of the queue."))]
    return list(_waiting(connection, job))


def _not_found(job_id: int) -> Reason:
    return Reason(
        "not_found",
        _("There is no job {id}.").format(id=job_id),
        _(
            "It was deleted after its retention or by hand, or the transaction that enqueued it has not "
            "committed (yet)."
        ),
    )


def _ended(job: JobFacts) -> Reason:
    ended = _when(job, job.finalized_at)
    error = _error(job)
    if job.state == JobState.COMPLETED:
        text = _("It has run: completed {when}.").format(when=ended)
        if job.finalized_at and job.attempted_at:
            took = spell(job.finalized_at - job.attempted_at)
            text = _("It has run: completed {when}, after {span}.").format(when=ended, span=took)
        return Reason("completed", text)
    again = _("Retry it when the cause is gone: it gets all its attempts again.")
    outcome = job.outcome_of_end
    if outcome == "superseded":
        text = _("It ended {when} because another job holds its unique key.").format(when=ended)
        advice = _("The other job does the work. Retry this one when that has ended.")
        return Reason("superseded", text, advice, None if job.holder_id == job.id else job.holder_id)
    if outcome == "unwritable":
        text = _("The database refuses its row, so it was put aside {when}: {error}").format(
            when=ended, error=error
        )
        return Reason("quarantined", text, _("A trigger, a check or a value of the row: mend it and retry."))
    if outcome == "expired":
        return Reason("expired", _("It was too old to begin {when}: {error}").format(when=ended, error=error))
    if job.state == JobState.CANCELLED:
        code = "discarded" if outcome == "discarded" else "cancelled"
        text = _("It was cancelled {when}.").format(when=ended)
        if job.ended_by and outcome == "cancelled":
            text = _("It was cancelled {when} by {name}.").format(when=ended, name=job.ended_by)
        elif outcome == "discarded":
            text = _("Its exception is one to discard, so it ended {when}: {error}").format(
                when=ended, error=error
            )
        return Reason(code, text, _("Retry it if it shall run after all."))
    if job.attempt >= job.max_attempts:
        text = ngettext(
            "It failed {when} and its {count} attempt is used up: {error}",
            "It failed {when} and all its {count} attempts are used up: {error}",
            job.max_attempts,
        ).format(when=ended, count=job.max_attempts, error=error)
        return Reason("attempts_used_up", text, again)
    text = _("It failed for good {when}, in attempt {attempt} of {most}: {error}").format(
        when=ended, attempt=job.attempt, most=job.max_attempts, error=error
    )
    return Reason("failed", text, again)


def _running(job: JobFacts) -> Iterator[Reason]:
    rescue = _rescue_advice(job)
    if job.deadline_at and job.deadline_at < job.now:
        yield Reason(
            "overdue",
            _("It runs past its deadline, which was {when}.").format(when=_when(job, job.deadline_at)),
            rescue,
        )
    stale_after = get_settings().stale_after
    if job.heartbeat_at is None or job.now - job.heartbeat_at > stale_after:
        text = _("Its worker {worker} is silent: it never had a heartbeat.")
        if job.heartbeat_at is not None:
            text = _("Its worker {worker} is silent: its last heartbeat was {when}.")
        text = text.format(worker=job.worker or "?", when=_when(job, job.heartbeat_at))
        yield Reason("silent", text, rescue)
    yield Reason(
        "running",
        _("It runs, attempt {attempt} of {most}, on {worker} since {when}.").format(
            attempt=job.attempt,
            most=job.max_attempts,
            worker=job.worker or "?",
            when=_when(job, job.attempted_at),
        ),
    )


def _rescue_advice(job: JobFacts) -> str:
    if "rescue" in job.duties:
        return _("It is taken back within a minute, and goes through the check of its attempts.")
    return _("Nobody takes lost runs back now, as no worker is running: start one.")


def _waiting(connection: Connection, job: JobFacts) -> Iterator[Reason]:
    """What holds an available, scheduled or retryable job, in the order in which it would have to go."""
    is_due = job.run_at <= job.now
    is_deferred = job.state in DEFERRED_STATES
    unknown = list(_unknown_kind(job))
    known_here = registry.find(job.kind) is not None
    comes_first = not known_here and (is_due or job.unknown_count is not None)
    if comes_first:  # it was put back for this, and will be again
        yield from unknown
    if not is_due:
        yield _future(job)
    if job.is_paused:
        yield _paused(job)
    queue = storage.why_queue(
        connection,
        job,
        is_deferred=is_deferred,
        seen_within=get_settings().stale_after,
        cap=COUNT_CAP + 1,
    )
    if is_due and is_deferred:
        yield _promotion(job, queue)
    unserved = list(_unserved(job, queue))
    yield from unserved
    if not comes_first:
        yield from unknown
    yield from _conflict(job)
    yield from _locked(job)
    yield from _not_to_begin(job)
    if is_deferred or not is_due or job.is_paused or unserved:
        return
    if queue.ahead_count:
        yield _behind(job, queue)
    if not queue.free_count:
        yield _busy(job, queue)
    elif not queue.ahead_count and job.locked_by_pid is None:
        yield _next(job)


def _future(job: JobFacts) -> Reason:
    when = _when(job, job.run_at)
    if job.state == JobState.RETRYABLE:
        text = _("It waits for its next attempt ({attempt} of {most}), {when}. The last one: {error}").format(
            attempt=min(job.attempt + 1, job.max_attempts),
            most=job.max_attempts,
            when=when,
            error=_error(job),
        )
        return Reason("retry_later", text, _("Run it now, or reschedule it."))
    return Reason("future", _("It is due {when}.").format(when=when), _("Run it now, or reschedule it."))


def _paused(job: JobFacts) -> Reason:
    if job.paused_until and job.paused_by:
        text = _("Its queue {queue} is paused by {name} since {since}, until {until}.")
    elif job.paused_until:
        text = _("Its queue {queue} is paused since {since}, until {until}.")
    elif job.paused_by:
        text = _("Its queue {queue} is paused by {name} since {since}, until it is resumed.")
    else:
        text = _("Its queue {queue} is paused since {since}, until it is resumed.")
    text = text.format(
        queue=job.queue,
        name=job.paused_by,
        since=_when(job, job.paused_at),
        until=_when(job, job.paused_until),
    )
    return Reason("paused", text, _("Resume the queue."))


def _promotion(job: JobFacts, queue: QueueFacts) -> Reason:
    """A due job that still stands among the deferred ones."""
    late = job.now - job.run_at
    count = queue.overdue_count
    if "promote" not in job.duties:
        text = ngettext(
            "It has been due for {span}, and nobody promotes due jobs; {count} job is before it.",
            "It has been due for {span}, and nobody promotes due jobs; {count} jobs are before it.",
            count,
        ).format(span=spell(late), count=_capped(count))
        return Reason("no_promoter", text, _("Any running worker does it: start one (manage.py awa_worker)."))
    if late > PROMOTED_WITHIN:
        text = ngettext(
            "It has been due for {span}, and promotion is behind; {count} job is before it.",
            "It has been due for {span}, and promotion is behind; {count} jobs are before it.",
            count,
        ).format(span=spell(late), count=_capped(count))
        return Reason(
            "promotion_behind",
            text,
            _("It goes on by itself; if the number does not fall, look for a long transaction: awa_doctor."),
        )
    return Reason("being_promoted", _("It has just fallen due, and is about to become available."))


def _unserved(job: JobFacts, queue: QueueFacts) -> Iterator[Reason]:
    if queue.serving_count:
        return
    start = _("Start one: manage.py awa_worker --queues {queue}").format(queue=shlex.quote(job.queue))
    if queue.draining_count:
        text = ngettext(
            "The {count} worker process that serves its queue {queue} is shutting down.",
            "The {count} worker processes that serve its queue {queue} are shutting down.",
            queue.draining_count,
        )
        code = "worker_draining"
    elif queue.silent_count:
        text = _("No live worker serves its queue {queue}: the last one was heard of {when}.")
        code = "worker_silent"
    elif queue.supervisor_count:
        text = _("The worker of its queue {queue} runs, but none of its child processes does.")
        code, start = "no_child", _("Look into its log: the children may fail to start.")
    elif queue.elsewhere_count:
        text = ngettext(
            "No live worker serves its queue {queue}; {count} process serves other queues.",
            "No live worker serves its queue {queue}; {count} processes serve other queues.",
            queue.elsewhere_count,
        )
        code = "no_worker"
    else:
        text = _("No worker runs at all, so nobody serves its queue {queue}.")
        code = "no_worker"
    count = queue.draining_count or queue.elsewhere_count
    when = _when(job, queue.last_seen_at) if queue.last_seen_at else "?"
    yield Reason(code, text.format(queue=job.queue, count=count, when=when), start)


def _unknown_kind(job: JobFacts) -> Iterator[Reason]:
    """No process can see what the live workers know: only what they declared, and what they put back."""
    times = int(min(_number(job.unknown_count) or 0, MOST_TIMES))
    advice = _("Deploy its handler to the workers, or give the kind as an alias of another one.")
    if times:
        text = ngettext(
            "A worker without a handler of its kind {kind} put it back {count} time.",
            "Workers without a handler of its kind {kind} put it back {count} times.",
            times,
        ).format(kind=job.kind, count=f"{times:,}")
        yield Reason("unknown_kind", text, advice)
    elif registry.find(job.kind) is None and not job.is_declared:
        text = _("No worker has ever declared its kind {kind}, and this process does not know it.").format(
            kind=job.kind
        )
        yield Reason("unknown_kind", text, advice)


def _conflict(job: JobFacts) -> Iterator[Reason]:
    if job.wants_key_when_available and job.holder_id not in (None, job.id):
        text = _("Another job, {id}, holds the unique key that this one needs to become available.").format(
            id=job.holder_id
        )
        advice = _("If that one has not ended by then, this one ends as superseded.")
        yield Reason("unique_conflict", text, advice, job.holder_id)


def _locked(job: JobFacts) -> Iterator[Reason]:
    if job.locked_by_pid is not None:
        text = _(
            "An open transaction has locked its row (server process {pid}, {name}): it is skipped."
        ).format(pid=job.locked_by_pid, name=job.locked_by_name or _("without a name"))
        yield Reason("locked", text, _("That one must commit or be ended."))


def _not_to_begin(job: JobFacts) -> Iterator[Reason]:
    """A job that is claimed only to be failed."""
    if job.attempt >= job.max_attempts:
        yield Reason(
            "attempts_used_up",
            _("Its {count} attempts are used up: its next claim fails it, unstarted.").format(
                count=job.max_attempts
            ),
            _("Retry it then: it gets all its attempts again."),
        )
    handler = registry.find(job.kind)
    most = _number(job.max_age)
    if not most and handler is not None and handler.max_age is not None:
        most = handler.max_age.total_seconds()
    due = _number(job.due_at) if job.attempt else None
    age = job.now.timestamp() - (job.run_at.timestamp() if due is None else due)
    if most and age > most:
        text = _("It was due {age} ago and may begin no later than after {most}: its next claim fails it.")
        yield Reason(
            "too_old",
            text.format(
                age=spell(timedelta(seconds=min(age, 3.2e9))), most=spell(timedelta(seconds=min(most, 3.2e9)))
            ),
            _("Enqueue it anew, or reschedule it."),
        )


def _behind(job: JobFacts, queue: QueueFacts) -> Reason:
    ahead = queue.ahead_count
    text = ngettext(
        "{count} available job of its queue {queue} is before it, by priority or as it was due sooner.",
        "{count} available jobs of its queue {queue} are before it, by priority or as they were due sooner.",
        ahead,
    ).format(count=_capped(ahead), queue=job.queue)
    return Reason("behind", text, _("More workers help all of them; a lower priority number helps this one."))


def _busy(job: JobFacts, queue: QueueFacts) -> Reason:
    text = ngettext(
        "The {count} process that serves its queue {queue} runs all that it can ({slots} at once).",
        "All {count} processes that serve its queue {queue} run all that they can ({slots} at once).",
        queue.serving_count,
    ).format(count=queue.serving_count, queue=job.queue, slots=queue.slot_count)
    return Reason(
        "workers_busy", text, _("It starts when a run ends. More workers or a higher --concurrency.")
    )


def _next(job: JobFacts) -> Reason:
    late = job.now - job.run_at
    if late <= CLAIMED_WITHIN:
        return Reason("next", _("Nothing holds it: it is the next of its queue to be claimed."))
    return Reason(
        "unclaimed",
        _("It has been due for {span}, and nothing in the database holds it.").format(span=spell(late)),
        _("Look at the workers: their health page and log, and a limit of --queues name:count."),
    )


def _when(job: JobFacts, instant: datetime | None) -> str:
    """An instant with its distance: ``2026-05-01 09:30:00 UTC (in 2 d 3 h)``."""
    if instant is None:
        return "?"
    distance = instant - job.now
    told = (_("in {span}") if distance > timedelta() else _("{span} ago")).format(span=spell(abs(distance)))
    local = timezone.localtime(instant)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()} ({told})"


def _error(job: JobFacts) -> str:
    """What the newest entry of its history says, on one line and with its secrets masked."""
    parts = [part for part in (job.class_name, job.error) if part]
    if not parts:
        return _("no error was kept")
    secrets = registry.find_job_secrets(job.kind, job.args or "", job.masked)
    # Cut when it is masked: of a secret that is cut in two, the first part would be shown.
    return " ".join(mask_text(": ".join(parts), secrets).split())[:LONGEST_ERROR]


def _capped(count: int) -> str:
    return _("over {count}").format(count=f"{COUNT_CAP:,}") if count > COUNT_CAP else f"{count:,}"


def _number(text: str | None) -> float | None:
    """A number of the metadata, which anybody may have written; None when it is none above 0."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
