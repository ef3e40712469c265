"""A job that waits: what holds it, in the order in which it would have to go."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Iterator
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.durations import spell
from awa_django.states import DEFERRED_STATES, JobState
from awa_django.storage import why as storage
from awa_django.storage._sql import Connection
from awa_django.storage.why import JobFacts, QueueFacts
from awa_django.why.reason import Reason, tell_error, tell_instant

# Nobody waits for a larger number: the count reads at most so many entries of an index (some 3 ms).
COUNT_CAP = 10_000
# Promotion comes within a quarter of a second and a new leader within 6 s: what is later is behind.
PROMOTED_WITHIN = timedelta(seconds=10)
# A claim looks at least once in POLL_INTERVAL: a job that stands first for longer is not looked for.
CLAIMED_WITHIN = timedelta(seconds=30)
# As high as a put-back counts (see defer.sql).
MOST_TIMES = 1_000_000


def explain_wait(connection: Connection, job: JobFacts) -> Iterator[Reason]:
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
    when = tell_instant(job, job.run_at)
    sooner = _("Run it now, or reschedule it: manage.py awa_jobs run-now {id}").format(id=job.id)
    if job.state == JobState.RETRYABLE:
        text = _("It waits for its next attempt ({attempt} of {most}), {when}. The last one: {error}").format(
            attempt=min(job.attempt + 1, job.max_attempts),
            most=job.max_attempts,
            when=when,
            error=tell_error(job),
        )
        return Reason("retry_later", text, sooner)
    return Reason("future", _("It is due {when}.").format(when=when), sooner)


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
        since=tell_instant(job, job.paused_at),
        until=tell_instant(job, job.paused_until),
    )
    advice = _("Resume the queue: manage.py awa_queues resume {queue}").format(queue=shlex.quote(job.queue))
    return Reason("paused", text, advice)


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
        text = _(
            "No live worker serves its queue {queue}. One that never said goodbye was last heard of {when}."
        )
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
    when = tell_instant(job, queue.last_seen_at) if queue.last_seen_at else "?"
    yield Reason(code, text.format(queue=job.queue, count=count, when=when), start)


def _unknown_kind(job: JobFacts) -> Iterator[Reason]:
    """No process can see what the live workers know: only what they declared, and what they put back."""
    times = int(min(_number(job.unknown_count) or 0, MOST_TIMES))
    advice = _advice_on_kind(job.kind)
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


def _advice_on_kind(kind: str) -> str:
    similar = (
        [] if registry.find(kind) else difflib.get_close_matches(kind, registry.kinds(), n=1, cutoff=0.8)
    )
    if similar:
        return _(
            "Is {similar} meant? After a rename give this kind as an alias of that one; "
            "after a typing error cancel this job, and enqueue it anew."
        ).format(similar=similar[0])
    return _(
        "Deploy its handler to the workers, in tasks.py or jobs.py of an app or in a module of "
        "AWA['IMPORTS']; or give the kind as an alias of another one."
    )


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


def _capped(count: int) -> str:
    return _("over {count}").format(count=f"{COUNT_CAP:,}") if count > COUNT_CAP else f"{count:,}"


def _number(text: str | None) -> float | None:
    """A number of the metadata, which anybody may have written; None when it is none above 0."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
