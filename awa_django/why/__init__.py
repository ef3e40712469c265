"""Why has a job not run? Reads the same things as promotion and claim do, and says what decides."""

from __future__ import annotations

import operator

from django.db import connections
from django.utils.translation import gettext as _

from awa_django.conf import get_settings
from awa_django.states import TERMINAL_STATES, JobState
from awa_django.storage import why as storage
from awa_django.storage.rows import LARGEST_ID
from awa_django.why.begun import explain_end, explain_run
from awa_django.why.reason import Reason
from awa_django.why.waiting import COUNT_CAP, explain_wait

__all__ = ["COUNT_CAP", "Reason", "explain"]


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
        return [explain_end(job)]
    if job.state == JobState.RUNNING:
        return list(explain_run(job))
    if job.state == JobState.WAITING_EXTERNAL:
        return [Reason("waiting_external", _("It waits for something outside of the queue."))]
    return list(explain_wait(connection, job))


def _not_found(job_id: int) -> Reason:
    return Reason(
        "not_found",
        _("There is no job {id}.").format(id=job_id),
        _(
            "It was deleted after its retention or by hand, or the transaction that enqueued it has not "
            "committed (yet)."
        ),
    )
