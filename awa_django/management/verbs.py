"""The verbs of ``awa_jobs`` that change jobs: what each does, to which states, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import connections

from awa_django import operations
from awa_django.operations import LARGEST_ID, Change, OperationResult
from awa_django.operations.change import Operation
from awa_django.operations.matching import apply_to_matching
from awa_django.states import JobState
from awa_django.storage.listing import Wanted
from awa_django.storage.operate import Match, locate

# Ids of each kind that an account names; it counts all.
NAMED = 1_000


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: ``done`` is what became of a job."""

    name: str
    operation: Operation
    done: str
    help: str

    @property
    def states(self) -> frozenset[JobState]:
        """Those that a job may leave by it."""
        return Change(operation=self.operation).states

    def run(self, job_ids: list[int], options: dict[str, Any], alias: str) -> OperationResult:
        """Do it to these jobs. Raises: ValueError for a value that the operation refuses."""
        if self.operation == "cancel":
            return operations.cancel(job_ids, by=options["by"], reason=options["reason"], using=alias)
        change = Change(
            operation=self.operation,
            priority=options.get("priority"),
            run_at=options.get("at"),
            queue=options.get("to"),
        )
        return change.apply(job_ids, by=options["by"], using=alias)


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "retry", "retry", "retried", "make failed and cancelled jobs available, with all their attempts"
        ),
        Verb("cancel", "cancel", "cancelled", "cancel jobs that have not ended; a running handler is told"),
        Verb("run-now", "run_now", "made available", "make scheduled and retryable jobs available at once"),
        Verb("reschedule", "reschedule", "rescheduled", "change when jobs that have not started are due"),
        Verb("set-priority", "set_priority", "set", "change the priority of jobs that have not ended"),
        Verb("move", "move_queue", "moved", "move jobs that have not started to another queue"),
        Verb("delete", "delete", "deleted", "delete jobs that do not run, with their errors and results"),
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
        self._take(self.verb.run(job_ids, options, alias))

    def run_matching(self, job_ids: list[int], wanted: Wanted, options: dict[str, Any], alias: str) -> None:
        """Do it to those of the jobs, which were found to match, that match still."""
        apply = partial(self.verb.run, options=options, alias=alias)
        match = Match(
            LARGEST_ID,
            states=None if wanted.states is None else sorted(wanted.states),
            kind=wanted.kind,
            queue=wanted.queue,
            tags=list(wanted.tags) or None,
        )
        self._take(apply_to_matching(apply, match, job_ids, using=alias))

    def _take(self, result: OperationResult) -> None:
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
