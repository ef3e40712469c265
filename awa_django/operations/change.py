"""A verb with its values, as data: what a form asks for, and what a job can carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from awa_django.operations import verbs
from awa_django.operations.limits import check_instant, check_priority, check_queue
from awa_django.operations.results import OperationResult
from awa_django.states import DEFERRED_STATES, TERMINAL_STATES, UNFINISHED_STATES, JobState
from awa_django.storage.operate import Table

Operation = Literal["retry", "run_now", "cancel", "set_priority", "reschedule", "move_queue", "delete"]
T = TypeVar("T")
# The kind of the job that walks: a walk leaves jobs of it alone, unless they are what it is for.
BULK_KIND = "awa.bulk_operation"
# So long it is kept after its end whatever AWA["RETENTION"] says: its row is what refuses the page that was
# confirmed already, which can be sent for an hour; and somebody wants to read what came of it.
BULK_KEPT_FOR = timedelta(hours=1)
UNSTARTED_STATES = DEFERRED_STATES | {JobState.AVAILABLE}
_THERE_AND_BACK: tuple[Table, ...] = ("hot", "deferred", "hot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One verb, with the value that it takes."""

    operation: Operation
    priority: int | None = None
    run_at: datetime | None = None
    queue: str | None = None

    @property
    def states(self) -> frozenset[JobState]:
        """Of the jobs that it takes."""
        return _FACTS[self.operation].states

    @property
    def permission(self) -> str:
        """Who may do it in the admin, and may have it done: the name that ``has_perm`` takes."""
        return f"awa.{_FACTS[self.operation].permission}"

    @property
    def passes(self) -> tuple[Table, ...]:
        """The tables in the order in which they are looked through for all jobs that match.

        A job may move meanwhile: promoted behind a look at the hot table it is found by another one, and
        what falls back is found among the deferred. No pass meets again what an earlier one has changed:
        so a job that was retried and has failed since is not retried twice. What one has left may be met
        again by the last of three.
        """
        return _FACTS[self.operation].passes

    def check(self) -> None:
        """Raises: ValueError for a value that the operation would refuse, or that is missing."""
        if self.operation == "set_priority":
            check_priority(_given(self.priority, "a priority"))
        elif self.operation == "reschedule":
            check_instant("run_at", _given(self.run_at, "an instant"))
        elif self.operation == "move_queue":
            check_queue(_given(self.queue, "a queue"))

    def apply(
        self, job_ids: Iterable[int], *, by: str | None = None, using: str | None = None
    ) -> OperationResult:
        """Do it to these jobs. Raises: as ``check``."""
        self.check()
        return _FACTS[self.operation].apply(self, list(job_ids), by, using)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of an operation."""

    permission: str
    states: frozenset[JobState]
    passes: tuple[Table, ...]
    apply: Callable[[Change, list[int], str | None, str | None], OperationResult]


def _given(value: T | None, what: str) -> T:
    if value is None:
        raise ValueError(f"the operation needs {what}")
    return value


_FACTS: dict[Operation, _Facts] = {
    "retry": _Facts(
        "retry_job",
        frozenset({JobState.FAILED, JobState.CANCELLED}),
        ("hot",),
        lambda _, ids, by, using: verbs.retry(ids, using=using),
    ),
    "run_now": _Facts(
        "run_job_now",
        DEFERRED_STATES,
        ("deferred",),
        lambda _, ids, by, using: verbs.run_now(ids, using=using),
    ),
    "cancel": _Facts(
        "cancel_job",
        UNFINISHED_STATES,
        _THERE_AND_BACK,
        lambda _, ids, by, using: verbs.cancel(ids, by=by, using=using),
    ),
    "set_priority": _Facts(
        "set_job_priority",
        UNFINISHED_STATES,
        _THERE_AND_BACK,
        lambda change, ids, by, using: verbs.set_priority(
            ids, _given(change.priority, "a priority"), using=using
        ),
    ),
    # Available jobs move to the deferred table by it, where a look afterwards would meet them again.
    "reschedule": _Facts(
        "reschedule_job",
        UNSTARTED_STATES,
        ("deferred", "hot"),
        lambda change, ids, by, using: verbs.reschedule(
            ids, _given(change.run_at, "an instant"), using=using
        ),
    ),
    "move_queue": _Facts(
        "move_job",
        UNSTARTED_STATES,
        _THERE_AND_BACK,
        lambda change, ids, by, using: verbs.move_queue(ids, _given(change.queue, "a queue"), using=using),
    ),
    "delete": _Facts(
        "delete_job",
        UNSTARTED_STATES | TERMINAL_STATES,
        _THERE_AND_BACK,
        lambda _, ids, by, using: verbs.delete(ids, using=using),
    ),
}
