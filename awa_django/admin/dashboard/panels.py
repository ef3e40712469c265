"""What the panels of the dashboard say: numbers and words ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from awa_django.admin.base import show_instant
from awa_django.admin.dashboard.alerts import LATE, alerts
from awa_django.admin.dashboard.charts import minutes, quantiles
from awa_django.admin.dashboard.format import clock, duration, number
from awa_django.admin.dashboard.processes import duty_rows, is_silent, schedule_rows, worker_rows
from awa_django.admin.dashboard.shared import Look
from awa_django.storage.dashboard import SPAN_CAP, SPANS, Snapshot
from awa_django.storage.status import FAILED_CAP

PANELS = (
    "status", "alerts", "tiles", "queues", "frontier", "minutes", "kinds", "workers", "duties", "schedules",
    "tables",
)  # fmt: skip
KINDS_SHOWN = 30
# Whole per mille: an attribute of SVG, where no locale may put a comma.
LONGEST_BAR = 1000
# Of a table's rows; fewer than these are not worth a warning.
MANY_DEAD, DEAD_SHARE = 10_000, 0.2


def panel_context(seen: Look, urls: Mapping[str, str]) -> dict[str, Any]:
    """What the templates need. ``urls`` has the lists that the user may see; other rows are not shown."""
    snapshot = seen.snapshot
    context: dict[str, Any] = {
        "urls": urls,
        "problem": seen.problem.text if seen.problem else "",
        "seen_at": None,
    }
    if snapshot is None:
        return context
    return {
        **context,
        "seen_at": clock(snapshot.now, "%H:%M:%S"),
        "zone": clock(snapshot.now, "%Z"),
        "alerts": alerts(snapshot, names_workers="runtimeinstance" in urls),
        "tiles": _tiles(snapshot, urls),
        "queues": _queue_rows(snapshot),
        "queues_capped": snapshot.is_cut,
        "spans": _span_rows(snapshot),
        "minutes": _minute_rows(snapshot),
        "kinds": _kind_rows(snapshot),
        "workers": worker_rows(snapshot),
        "duties": duty_rows(snapshot),
        "schedules": schedule_rows(snapshot),
        "tables": _table_rows(snapshot),
    }


def _tiles(snapshot: Snapshot, urls: Mapping[str, str]) -> list[dict[str, Any]]:
    queues, cap = snapshot.queues, snapshot.queue_cap
    hour = minutes(snapshot)
    slots = sum(worker.concurrency for worker in snapshot.processes.workers if not is_silent(worker))
    waits = [queue.available_seconds for queue in queues if not queue.paused]
    oldest = max((wait for wait in waits if wait is not None), default=None)
    lag = snapshot.overdue_seconds
    failed = sum(queue.failed for queue in queues)
    hot, deferred = urls.get("hotjob"), urls.get("deferredjob")

    def tile(
        label: str, value: str, note: str, url: str | None = None, *, bad: bool = False
    ) -> dict[str, Any]:
        return {"label": label, "value": value, "note": note, "url": url, "is_bad": bad}

    return [
        tile(
            _("Runnable"),
            _sum([queue.available for queue in queues], cap),
            _("oldest waits %(time)s") % {"time": duration(oldest)}
            if oldest is not None
            else _("nothing waits"),
            hot and f"{hot}?state=available",
        ),
        tile(
            _("Running"),
            number(sum(queue.running for queue in queues)),
            _("of %(slots)s slots") % {"slots": number(slots)},
            hot and f"{hot}?state=running",
            bad=not slots,
        ),
        tile(
            _("Ended per minute"),
            number(hour[-2].ended),
            _("%(count)s in the hour") % {"count": number(sum(minute.ended for minute in hour))},
        ),
        tile(
            _("Deferred"),
            _sum([queue.deferred for queue in queues], cap),
            _("%(count)s within the hour") % {"count": _sum([queue.due_soon for queue in queues], cap)},
            deferred,
        ),
        tile(
            _("Promotion lag"),
            duration(lag or 0.0),
            _("%(count)s overdue") % {"count": _sum([queue.overdue for queue in queues], cap)},
            deferred,
            bad=lag is not None and lag > LATE.total_seconds(),
        ),
        tile(
            _("Failed"),
            number(failed, FAILED_CAP),
            _("%(count)s in the hour") % {"count": number(sum(minute.failed for minute in hour))},
            hot and f"{hot}?state=failed",
            bad=failed > 0,
        ),
    ]


def _queue_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    cap = snapshot.queue_cap
    ended = {row.queue: row for row in snapshot.stats if row.queue is not None}
    is_cut = sum(queue.failed for queue in snapshot.queues) >= FAILED_CAP
    rows = []
    for queue in snapshot.queues:
        in_hour = ended.get(queue.queue)
        rows.append(
            {
                "name": queue.queue,
                "paused": queue.paused,
                "paused_by": queue.paused_by,
                "runnable": number(queue.available, cap),
                "oldest": duration(_above_zero(queue.available_seconds)),
                "running": number(queue.running),
                "deferred": number(queue.deferred, cap),
                "due_soon": number(queue.due_soon, cap),
                "overdue": number(queue.overdue, cap),
                # Among the newest ones only, once they are cut off: each queue may have more.
                "failed": f"{number(queue.failed)}+" if is_cut else number(queue.failed),
                "has_failed": queue.failed > 0,
                "ended": number(in_hour.ended if in_hour else 0),
            }
        )
    return rows


def _span_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """When deferred jobs are due, each span with a bar as long as its share of the fullest."""
    labels = [_("overdue"), _("within %(end)s") % {"end": _span(SPANS[1])}]
    labels += [f"{_span(start)} - {_span(end)}" for start, end in pairwise(SPANS[1:])]
    labels.append(_("after %(start)s") % {"start": _span(SPANS[-1])})
    sizes = [max(span.counted, span.estimate or 0) for span in snapshot.frontier]
    most = max(sizes)
    return [
        {
            "label": label,
            "count": _about(size) if size > SPAN_CAP else number(size, SPAN_CAP),
            "bar": max(LONGEST_BAR * size // most, 4) if size else 0,
            "is_capped": size >= SPAN_CAP,
            "is_overdue": place == 0,
        }
        for place, (label, size) in enumerate(zip(labels, sizes, strict=True))
    ]


def _minute_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The minutes in which something ended, newest first."""
    return [
        {
            **{name: number(count) for name, count in asdict(minute).items() if isinstance(count, int)},
            "time": clock(minute.begins_at),
            "waits": [duration(seconds) for seconds in minute.waits],
            "runs": [duration(seconds) for seconds in minute.runs],
        }
        for minute in reversed(minutes(snapshot))
        if minute.ended
    ]


def _kind_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The kinds of which most ended in the last hour."""
    kinds = sorted(
        ((row.kind, row) for row in snapshot.stats if row.kind is not None),
        key=lambda each: (-each[1].ended, each[0]),
    )
    return [
        {
            "kind": kind,
            "ended": number(row.ended),
            "retried": number(row.retried),
            "failed": number(row.failed),
            "has_failed": row.failed > 0,
            "waits": [duration(seconds) for seconds in quantiles(row.waits)],
            "runs": [duration(seconds) for seconds in quantiles(row.runs)],
        }
        for kind, row in kinds[:KINDS_SHOWN]
    ]


def _table_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "name": row.table,
            "size": filesizeformat(row.size),
            "index_size": filesizeformat(row.index_size),
            "live": number(row.live),
            "dead": number(row.dead),
            "is_bad": row.dead > MANY_DEAD and row.dead > DEAD_SHARE * (row.live + row.dead),
            "vacuumed": show_instant(row.vacuumed_at),
            "analyzed": show_instant(row.analyzed_at),
        }
        for row in snapshot.tables
    ]


def _above_zero(seconds: float | None) -> float | None:
    return None if seconds is None else max(seconds, 0.0)


def _sum(counts: list[int], cap: int) -> str:
    """Of counts that stop at a cap; at least so many when one of them did."""
    return number(sum(counts)) + ("+" if any(count >= cap for count in counts) else "")


def _about(count: int) -> str:
    """An estimate, with no more digits than it deserves."""
    return _("about %(count)s") % {"count": number(int(float(f"{count:.1e}")))}


def _span(seconds: float) -> str:
    if seconds < 3_600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 86_400 else f"{seconds / 86_400:.0f} d"
