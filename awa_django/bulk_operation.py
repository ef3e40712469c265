"""The job that does what an operator asked for to all jobs that match, however many.

It is an ordinary job of the kind ``awa.bulk_operation``. Each batch commits together with the place
reached, under the lease of the run: after the death of a worker the next attempt goes on from there, and
a run that lost its lease changes nothing more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import DatabaseError, ProgrammingError, connections, router, transaction

from awa_django.codec import clean_json
from awa_django.committing import committing
from awa_django.conf import get_settings
from awa_django.context import JobContext
from awa_django.errors import TerminalError
from awa_django.jobs import job
from awa_django.logs import get_logger
from awa_django.operations.change import BULK_KIND, Change
from awa_django.operations.walk import Place, Selection, walk
from awa_django.outcomes import RetryAfter
from awa_django.retry import Exponential
from awa_django.storage.heartbeat import progress
from awa_django.storage.rows import Attempt
from awa_django.unique import Unique

logger = get_logger(__name__)

# Longer than any walk takes; without it AWA["TIMEOUT"] would hold, which is made for other jobs.
LONGEST_SECONDS = 24 * 3600.0
SOON_SECONDS = 5.0


class _Stopped(Exception):
    """The run is over: cancelled, or no longer ours."""


@job(
    kind=BULK_KIND,
    priority=1,
    timeout=LONGEST_SECONDS,
    retry=Exponential(base=1, cap=60),
    takes_context=True,
    keep_result=True,
    unique=Unique(args=("confirmation",), states="kept"),
)
def bulk_operation(
    context: JobContext,
    change: Change,
    selection: Selection,
    by: str | None,
    user_id: str | None,
    confirmation: str,  # noqa: ARG001  (the unique key is made of it)
) -> dict[str, object] | RetryAfter:
    """Do the change to all jobs of the selection; how many were changed, how many left, and why.

    ``by`` and ``user_id`` are who asked for it, and must still have the right to it when a run begins; None
    where code did. ``confirmation`` names the form that was sent: sent twice, there is one job.
    """
    alias = get_settings().database
    if user_id is not None and (refusal := _why_not(change, user_id)):
        text = f"{by} {refusal}: nothing more is done"
        _log(context.job_id, f"Refused, {change.operation}: {text}.", user_id)
        raise TerminalError(text)
    passes = len(selection.passes(change))
    place = Place()
    if context.checkpoint is not None:
        place = msgspec.convert(context.checkpoint, Place)

    def keep(place: Place) -> None:
        if context.is_cancelled or not _keep(context, place, place.share(selection, passes), alias):
            raise _Stopped

    try:
        with committing(alias):
            place = walk(change, selection, place, by=by, keep=keep, using=alias)
            if not place.is_logged:  # a worker may have died after it
                with transaction.atomic(using=alias):
                    keep(replace(place, is_logged=True))
                    _log(context.job_id, _end(change, place), user_id)
    except _Stopped:
        # Where the run is over this does not count; where it only was in doubt, the next one goes on.
        return RetryAfter(SOON_SECONDS, "stopped before the end: the next attempt goes on from here")
    return {
        "operation": change.operation,
        "changed": place.changed,
        "left": place.left,
        "first_left": place.as_json()["first_left"],
    }


def _keep(context: JobContext, place: Place, share: float, alias: str) -> bool:
    """Store the place in the job's own row, in the open transaction; whether the run is still ours."""
    attempt = Attempt(context.job_id, context.run_lease)
    message = f"{place.changed:,} changed, {place.left:,} left"
    stored = {"percent": round(share * 100, 1), "message": message, "checkpoint": place.as_json()}
    return bool(progress(connections[alias], {attempt: json.dumps(clean_json(stored))}))


def _why_not(change: Change, user_id: str) -> str:
    """Why the user may not have it done: the end of a sentence that begins with them; empty where they may.

    Raises: TerminalError where that cannot be asked.
    """
    if not apps.is_installed("django.contrib.auth"):
        raise TerminalError(
            "there are no users here (django.contrib.auth), so nobody can be asked for a right"
        )
    # Not at the top: a project may do without.
    from django.contrib.auth import get_user_model

    users: Any = get_user_model()._default_manager
    try:
        user = users.filter(pk=user_id).first()
        if user is None:
            return "does not exist any more"
        if not user.is_active:
            return "is not active any more"
        return "" if user.has_perm(change.permission) else f"has no {change.permission} any more"
    except (ValueError, ValidationError):  # what no key of a user can be
        return "does not exist any more"
    except ProgrammingError as exc:
        raise TerminalError(
            f"the worker cannot ask for the rights of who asked for it, so nothing is done: {exc} "
            "Its role must be able to read Django's users, groups and permissions."
        ) from exc


def _end(change: Change, place: Place) -> str:
    left = "".join(f" Job {left.job_id} {left.reason}." for left in place.first_left[:10])
    return f"Ended, {change.operation}: {place.changed:,} changed, {place.left:,} left.{left}"


def _log(job_id: int, message: str, user_id: str | None) -> None:
    """An entry in Django's admin log, where there is one and the user still exists."""
    if user_id is None or not apps.is_installed("django.contrib.admin"):
        return
    # Not at the top: a project may do without the admin.
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.auth import get_user_model
    from django.contrib.contenttypes.models import ContentType

    from awa_django.models import Job

    users: Any = get_user_model()._default_manager
    try:
        alias = router.db_for_write(LogEntry)
        with committing(alias), transaction.atomic(using=alias):
            if not users.filter(pk=user_id).exists():
                return
            LogEntry.objects.create(
                user_id=user_id,
                content_type=ContentType.objects.get_for_model(Job),
                object_id=str(job_id),
                object_repr=f"job {job_id}",
                action_flag=CHANGE,
                change_message=message,
            )
    except (ValueError, ValidationError):  # no key of a user
        return
    except DatabaseError:  # the worker's role may have no right to the log; the job says the same
        logger.warning("what came of bulk job %s cannot be logged", job_id, exc_info=True)
