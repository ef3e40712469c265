"""The verbs of ``awa_jobs`` that change jobs: what each does, to which states, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from awa_django import operations
from awa_django.operations import OperationResult
from awa_django.states import DEFERRED_STATES, UNFINISHED_STATES, JobState
from awa_django.storage.operate import locate

# Ids of each kind that an account names; it counts all.
NAMED = 1_000
UNSTARTED_STATES = DEFERRED_STATES | {JobState.AVAILABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb: ``done`` is what became of a job, ``states`` those that it may leave."""

    name: str
    help: str
    done: str
    states: frozenset[JobState]
    run: Callable[[list[int], dict[str, Any], str], OperationResult]


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            name="retry",
            help="make failed and cancelled jobs available again, with all their attempts",
            done="retried",
            states=frozenset({JobState.FAILED, JobState.CANCELLED}),
            run=lambda ids, _options, alias: operations.retry(ids, using=alias),
        ),
        Verb(
            name="cancel",
            help="cancel jobs that have not ended; a running handler is told",
            done="cancelled",
            states=UNFINISHED_STATES,
            run=lambda ids, options, alias: operations.cancel(
                ids, by=options["by"], reason=options["reason"], using=alias
            ),
        ),
        Verb(
            name="run-now",
            help="make scheduled and retryable jobs available at once",
            done="made available",
            states=DEFERRED_STATES,
            run=lambda ids, _options, alias: operations.run_now(ids, using=alias),
        ),
        Verb(
            name="reschedule",
            help="change when jobs that have not started are due",
            done="rescheduled",
            states=UNSTARTED_STATES,
            run=lambda ids, options, alias: operations.reschedule(ids, options["at"], using=alias),
        ),
        Verb(
            name="set-priority",
            help="change the priority of jobs that have not ended; a lower one runs sooner",
            done="set",
            states=UNFINISHED_STATES,
            run=lambda ids, options, alias: operations.set_priority(ids, options["priority"], using=alias),
        ),
        Verb(
            name="move",
            help="move jobs that have not started, and have no unique key, to another queue",
            done="moved",
            states=UNSTARTED_STATES,
            run=lambda ids, options, alias: operations.move_queue(ids, options["to"], using=alias),
        ),
        Verb(
            name="delete",
            help="delete jobs that do not run, with their errors and results",
            done="deleted",
            states=frozenset(JobState) - {JobState.RUNNING, JobState.WAITING_EXTERNAL},
            run=lambda ids, _options, alias: operations.delete(ids, using=alias),
        ),
    )
}


@dataclass(slots=True)
class Account:
    """What became of the jobs so far: whole counts, and the first ids of each."""

    verb: Verb
    is_dry_run: bool
    changed_count: int = 0
    refused_count: int = 0
    changed: list[int] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def add(self, changed: Iterable[int], refused: Iterable[tuple[int, str | None, str]]) -> None:
        """Add what came of a batch; of the refused id, state and reason."""
        for job_id in changed:
            self.changed_count += 1
            if len(self.changed) < NAMED:
                self.changed.append(job_id)
        for job_id, state, reason in refused:
            self.refused_count += 1
            if len(self.refused) < NAMED:
                self.refused.append({"id": job_id, "state": state, "reason": reason})

    def run(self, job_ids: list[int], options: dict[str, Any], alias: str) -> None:
        """Do it to these jobs; a dry run only asks for their states."""
        if self.is_dry_run:
            self._look(job_ids, alias)
            return
        result = self.verb.run(job_ids, options, alias)
        self.add(result.changed, ((job.job_id, job.state, job.reason) for job in result.refused))

    def _look(self, job_ids: list[int], alias: str) -> None:
        given = sorted(set(job_ids))
        found = locate(connections[alias], given)
        ready = [job_id for job_id in given if job_id in found and found[job_id].state in self.verb.states]
        left = (job_id for job_id in given if job_id not in ready)
        self.add(
            ready,
            (
                (job_id, found[job_id].state, f"is {found[job_id].state}")
                if job_id in found
                else (job_id, None, "does not exist")
                for job_id in left
            ),
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verb": self.verb.name,
            "dry_run": self.is_dry_run,
            "changed_count": self.changed_count,
            "refused_count": self.refused_count,
            "changed": sorted(self.changed),
            "refused": self.refused,
        }
