"""One change on all jobs of a selection, in steps: what a step changed commits with the place reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial

from django.db import connections, transaction

from awa_django.conf import get_settings
from awa_django.operations import matching
from awa_django.operations.change import BULK_KIND, Change
from awa_django.operations.results import OperationResult, Refusal
from awa_django.states import DEFERRED_STATES, HOT_STATES, JobState
from awa_django.storage import operate
from awa_django.storage.operate import Table

# The first jobs that could not be changed, kept with their reasons.
LEFT_KEPT = 50
_STATES: dict[Table, frozenset[JobState]] = {"hot": HOT_STATES, "deferred": DEFERRED_STATES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which jobs: those of one table or of both, with these values; what is empty is any.

    ``ended``: the outcome of the attempt that was the end. Jobs enqueued after ``highest_id`` are left,
    and those that ended after ``ended_by``: nobody has seen that.
    """

    highest_id: int
    table: Table | None = None
    state: str | None = None
    kind: str | None = None
    queue: str | None = None
    tags: tuple[str, ...] = ()
    ended: str | None = None
    ended_by: datetime | None = None

    def states(self, change: Change) -> list[str]:
        """Of the jobs that the change takes; empty when it takes none of these."""
        taken = change.states if self.table is None else change.states & _STATES[self.table]
        return sorted(state for state in taken if self.state in (None, state))

    def passes(self, change: Change) -> list[Table]:
        if self.table is None:
            return list(change.passes)
        return [self.table] if self.table in change.passes else []

    def match(self, change: Change) -> operate.Match:
        return operate.Match(
            self.highest_id,
            states=self.states(change),
            kind=self.kind,
            queue=self.queue,
            tags=list(self.tags) or None,
            ended=self.ended,
            # One that was stopped is resumed by itself, by who may do what it does.
            except_kind=None if self.kind == BULK_KIND and change.operation != "retry" else BULK_KIND,
            except_queue=change.queue,
            except_priority=change.priority,
            except_run_at=change.run_at,
            ended_by=self.ended_by,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a walk is: all it needs to go on from there."""

    passes_done: int = 0
    first_id: int | None = None
    """Where the pass began; None before it."""
    last_id: int = 0
    """Jobs up to this id are done in this pass."""
    changed: int = 0
    left: int = 0
    first_left: tuple[Refusal, ...] = ()
    is_logged: bool = False
    """Whether the admin's log has its end already."""

    def beyond(self, result: OperationResult, last_id: int) -> Place:
        """After these jobs. What is left by a second look at a table was counted by the first one."""
        refused = result.refused if self.passes_done < 2 else ()
        kept = (*self.first_left, *refused[: LEFT_KEPT - len(self.first_left)])
        return replace(
            self,
            last_id=last_id,
            changed=self.changed + len(result.changed),
            left=self.left + len(refused),
            first_left=kept,
        )

    def share(self, selection: Selection, passes: int) -> float:
        """About which share of the walk lies behind, 0 to 1, by the range of ids."""
        if self.passes_done >= passes:
            return 1.0
        inside = 0.0
        if self.first_id is not None and selection.highest_id > self.first_id:
            inside = (self.last_id - self.first_id) / (selection.highest_id - self.first_id)
        return (self.passes_done + min(max(inside, 0.0), 1.0)) / passes

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "first_left": [asdict(refusal) for refusal in self.first_left]}


def walk(
    change: Change,
    selection: Selection,
    place: Place,
    *,
    by: str | None,
    keep: Callable[[Place], object],
    using: str | None = None,
) -> Place:
    """Go on from the place to the end; the last place.

    ``keep`` is told each place inside the transaction of the batch that leads there: what it writes there
    commits with the batch, and when it raises, neither is done. No statement locks more than ``BATCH``
    jobs or reads more than ``LOOK``.
    """
    alias = using or get_settings().database
    connection = connections[alias]
    match = selection.match(change)
    apply = partial(change.apply, by=by, using=alias)
    for table in selection.passes(change)[place.passes_done :]:
        if place.first_id is None:
            lowest = operate.lowest_ids(connection)[table == "deferred"]
            start = selection.highest_id if lowest is None else lowest - 1
            place = replace(place, first_id=start, last_id=start)
        looked_at = matching.look_through(connection, match, table, after_id=place.last_id)
        for last_id, some in looked_at if match.states else ():
            with transaction.atomic(using=alias):
                result = matching.apply_to_matching(apply, match, some, using=alias)
                place = place.beyond(result, last_id)
                keep(place)
        place = replace(place, passes_done=place.passes_done + 1, first_id=None)
    return place
