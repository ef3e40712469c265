"""What the pages call states, ends and refusals in the reader's language, and how they write numbers.

Rows, logs and the admin's log have these words in English: whoever reads them later has another language.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from django.utils import translation
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import gettext_noop as _n

from awa_django.operations import Refusal
from awa_django.states import JobState
from awa_django.storage.status import WorkerState

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    Words: TypeAlias = StrOrPromise
else:
    Words = object

STATES: dict[str, Words] = {
    JobState.SCHEDULED: _l("scheduled"),
    JobState.AVAILABLE: _l("available"),
    JobState.RUNNING: _l("running"),
    JobState.COMPLETED: _l("completed"),
    JobState.RETRYABLE: _l("retryable"),
    JobState.FAILED: _l("failed"),
    JobState.CANCELLED: _l("cancelled"),
    JobState.WAITING_EXTERNAL: _l("waiting external"),
}
# The outcomes of an attempt, as error entries have them, beside those that are called like a state.
OUTCOMES: dict[str, Words] = {
    "retried": _l("retried"),
    "rescued": _l("rescued"),
    "timed_out": _l("timed out"),
    "expired": _l("expired"),
    "superseded": _l("superseded"),
    "discarded": _l("discarded"),
    "unwritable": _l("unwritable"),
    "snoozed": _l("snoozed"),
}
SCHEDULE_STATES: dict[str, Words] = {
    "active": _l("active"),
    "paused": _l("paused"),
    "undeclared": _l("undeclared"),
}
# What each is called, and the state of jobs whose colour it has.
WORKER_STATES: dict[WorkerState, tuple[Words, str]] = {
    "alive": (_l("alive"), JobState.COMPLETED),
    "draining": (_l("draining"), JobState.RETRYABLE),
    "silent": (_l("silent"), JobState.FAILED),
    "gone": (_l("gone"), "unknown"),
}
# What an operation says of a job that it left, after "job 17": the sentences of awa_django.operations.
_REFUSALS = (
    _n("does not exist"),
    _n("is scheduled"),
    _n("is available"),
    _n("is running"),
    _n("is completed"),
    _n("is retryable"),
    _n("is failed"),
    _n("is cancelled"),
    _n("is waiting_external"),
    _n("matches no more"),
    _n("kept moving on: try again"),
    _n("is available, and run_at has come (or it kept moving on: try again)"),
    _n("has a unique key, which may cover its queue"),
    _n("has a unique key that is made of what was changed"),
    _n("has a unique key, and it cannot be told here whether it is made of its arguments"),
    _n("has these arguments already"),
    _n("has got other arguments meanwhile"),
    _n("does what somebody confirmed, and nothing else"),
    _n("does to many what you may not do to one"),
    _n("its unique key is held by another job"),
)
_HELD = re.compile(r"its unique key is held by job (\d+)")


def state_name(state: str) -> str:
    """A state as people say it; one that is none as it is."""
    return str(STATES.get(state, state.replace("_", " ")))


def outcome_name(outcome: str) -> str:
    """How an attempt went; whatever else somebody wrote in its place as it is."""
    return str(OUTCOMES.get(outcome) or state_name(outcome))


def refusal(job: Refusal) -> str:
    """Why a job was left as it is: the end of a sentence that begins with the job."""
    if held := _HELD.fullmatch(job.reason):
        return _("its unique key is held by job %(id)s") % {"id": held[1]}
    return _(job.reason) if job.reason in _REFUSALS else job.reason


def grouped(number: int) -> str:
    """A whole number as the reader's language groups it: ``10,000``, ``10.000``."""
    return str(number_format(number, force_grouping=True))


def english() -> translation.override:
    """For what is written into rows: it has the words of no reader's language."""
    return translation.override("en")
