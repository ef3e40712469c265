"""Which index reads a list of jobs, and how far where none has just the rows that are asked for.

The hot table pays for each index three times a job, so it has few. A list whose filter none of them
serves walks rows in the list's order, and stops after ``WINDOW``: the page says so, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from awa_django.admin.base import COUNT_CAP
from awa_django.admin.keyset import AmongIds, Key, Order, narrow
from awa_django.models import DeferredJob, HotJob
from awa_django.states import JobState
from awa_django.storage.listing import WINDOW

# Rows looked through for one page, up to three times over: for its end, its count and its rows. By id
# (WINDOW) they lie side by side, in the order of due instants anywhere, and JSON has to be unpacked.
WINDOW_BY_INSTANT, WINDOW_IN_JSON = 25_000, 20_000
# What jobs_hot_attention holds by (state, id).
ATTENTION = frozenset({JobState.FAILED, JobState.CANCELLED, JobState.WAITING_EXTERNAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the rows of a list are come by."""

    order: Order
    prefix: Mapping[str, str] = field(default_factory=dict)
    """Values of the index's columns before those of the order."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Values that all rows of a partial index have, which is in the order of ids alone."""
    line: QuerySet[Any] | None = None
    """The ids of the available jobs that are looked through: those first in line."""
    rest: Mapping[str, str] = field(default_factory=dict)
    """Wanted values that the index does not know: rows without them are met on the way."""
    window: int | None = None
    """After how many rows it ends, where more may be met that are not wanted."""

    def base(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """All rows of the index for this list in its order, those too that are not wanted."""
        if self.line is not None:
            queryset = queryset.filter(AmongIds(self.line))
        queryset = narrow(queryset.filter(**self.held), self.prefix)
        return queryset.order_by(*self.order.by(self.prefix))

    def end(self, queryset: QuerySet[Any], start: Key | None) -> Key | None:
        """The first row that is out of reach for who begins at ``start``; None where all is within."""
        if self.window is None:
            return None
        rows = self.base(queryset)
        if start is not None:
            rows = rows.filter(self.order.behind(start, inclusive=True))
        return next(iter(rows.values_list(*self.order.columns)[self.window : self.window + 1]), None)


def choose(
    model: Any, order: Order, wanted: Mapping[str, str], *, narrows: bool = False, unpacks: bool = False
) -> Reach:
    """For rows with the ``wanted`` values by column.

    ``narrows``: more is wanted that no index knows; ``unpacks``: and that is within JSON.
    """
    window = WINDOW if order.columns[0] == "id" else WINDOW_BY_INSTANT
    window = min(window, WINDOW_IN_JSON) if unpacks else window
    state = wanted.get("state")
    known: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    if model is DeferredJob:
        if order.columns[0] == "run_at":
            known = next(((column,) for column in ("kind", "queue") if column in wanted), ())
            options = {"prefix": {column: wanted[column] for column in known}}
    elif state in ATTENTION:
        known, options = ("state",), {"prefix": {"state": state}}
    elif state == JobState.RUNNING:
        known, options = ("state",), {"held": {"state": state}}
    elif state == JobState.AVAILABLE:
        known, options = ("state", "queue"), {"line": _line(wanted.get("queue"))}
    rest = {column: value for column, value in wanted.items() if column not in known}
    if "line" not in options and (rest or narrows):
        options["window"] = window
    return Reach(order=order, rest=rest, **options)


def by_ids(order: Order, wanted: Mapping[str, str]) -> Reach:
    """For a few rows by their ids, of which all else is looked at."""
    return Reach(order=Order(("id",), order.descending), rest=wanted)


def _line(queue: str | None) -> QuerySet[Any]:
    """In the order of jobs_hot_claim, which is the order of claims; one more than is counted."""
    jobs = narrow(HotJob.objects.filter(state=JobState.AVAILABLE), {} if queue is None else {"queue": queue})
    return jobs.order_by("queue", "priority", "run_at", "id").values("id")[: COUNT_CAP + 1]
