"""What is drawn: the last hour, minute by minute. The same numbers are in a table under the charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from awa_django.admin.dashboard.format import clock, duration, number
from awa_django.histogram import percentile
from awa_django.storage.dashboard import MINUTES, Snapshot, StatsRow

QUANTILES = (0.5, 0.95, 0.99)
TONES = ("blue", "violet", "amber")


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What ended in a minute; None where nothing was counted. The newest minute is not over yet."""

    begins_at: datetime
    completed: int = 0
    retried: int = 0
    failed: int = 0
    cancelled: int = 0
    waits: tuple[float | None, ...] = (None, None, None)
    runs: tuple[float | None, ...] = (None, None, None)

    @property
    def ended(self) -> int:
        return self.completed + self.retried + self.failed + self.cancelled


def minutes(snapshot: Snapshot) -> list[Minute]:
    """The last hour, oldest first, with the minutes in which nothing ended."""
    found = {row.minute: row for row in snapshot.stats if row.minute is not None}
    newest = snapshot.now.replace(second=0, microsecond=0)
    instants = [newest - timedelta(minutes=ago) for ago in range(MINUTES - 1, -1, -1)]
    return [_minute(instant, found.get(instant)) for instant in instants]


def quantiles(histogram: Sequence[int] | None) -> tuple[float | None, ...]:
    """The seconds at QUANTILES."""
    return tuple(percentile(histogram, quantile) for quantile in QUANTILES)


def charts(snapshot: Snapshot | None) -> dict[str, Any]:
    """What the script draws, by the name of the figure."""
    hour = [] if snapshot is None else minutes(snapshot)
    return {
        "throughput": _chart(
            hour,
            kind="bars",
            series=[
                (_("completed"), "green", [minute.completed for minute in hour]),
                (_("retried"), "amber", [minute.retried for minute in hour]),
                (_("failed"), "red", [minute.failed for minute in hour]),
                (_("cancelled"), "grey", [minute.cancelled for minute in hour]),
            ],
            summary=_ended_in_words(hour),
        ),
        "wait": _percentiles(hour, [minute.waits for minute in hour], _("Wait")),
        "run": _percentiles(hour, [minute.runs for minute in hour], _("Run time")),
    }


def _minute(instant: datetime, row: StatsRow | None) -> Minute:
    if row is None:
        return Minute(begins_at=instant)
    return Minute(
        begins_at=instant,
        completed=row.completed,
        retried=row.retried,
        failed=row.failed,
        cancelled=row.cancelled,
        waits=quantiles(row.waits),
        runs=quantiles(row.runs),
    )


def _chart(
    hour: Sequence[Minute], *, kind: str, series: Sequence[tuple[str, str, Sequence[Any]]], summary: str
) -> dict[str, Any]:
    return {
        "kind": kind,
        "x": [int(minute.begins_at.timestamp()) for minute in hour],
        "labels": [clock(minute.begins_at) for minute in hour],
        "series": [{"label": label, "tone": tone, "values": values} for label, tone, values in series],
        "summary": summary,
        "is_empty": not any(value is not None and value > 0 for *_rest, values in series for value in values),
    }


def _percentiles(
    hour: Sequence[Minute], values: Sequence[tuple[float | None, ...]], what: str
) -> dict[str, Any]:
    return _chart(
        hour,
        kind="seconds",
        series=[
            (f"p{quantile * 100:.0f}", tone, [_rounded(each[place]) for each in values])
            for place, (quantile, tone) in enumerate(zip(QUANTILES, TONES, strict=True))
        ],
        summary=_newest_in_words(hour, values, what),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _ended_in_words(hour: Sequence[Minute]) -> str:
    most = max(hour, key=lambda minute: minute.ended, default=None)
    if most is None or not most.ended:
        return _("No job ended in the last hour.")
    return _(
        "Jobs that ended per minute, in the last hour: %(all)s in all, at most %(most)s at %(time)s."
    ) % {
        "all": number(sum(minute.ended for minute in hour)),
        "most": number(most.ended),
        "time": clock(most.begins_at),
    }


def _newest_in_words(hour: Sequence[Minute], values: Sequence[tuple[float | None, ...]], what: str) -> str:
    for minute, each in zip(reversed(hour), reversed(values), strict=True):
        if each[0] is not None:
            return _(
                "%(what)s per minute, in the last hour; at %(time)s half were under %(half)s, 95 %% under "
                "%(most)s and 99 %% under %(nearly_all)s."
            ) % {
                "what": what,
                "time": clock(minute.begins_at),
                "half": duration(each[0]),
                "most": duration(each[1]),
                "nearly_all": duration(each[2]),
            }
    return _("%(what)s: nothing was measured in the last hour.") % {"what": what}
