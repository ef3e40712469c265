"""Metrics of the whole queue in Prometheus' text format, asked of the database in a few bounded statements.

Served by ``awa_django.views.metrics`` and printed by ``manage.py awa_metrics``. One scrape of one process is
enough for an installation: all of it is in the database. docs/metrics.md explains each metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from awa_django import registry, scaling
from awa_django.conf import get_settings
from awa_django.exposition import Family, Labels, Sample, as_text, gauge
from awa_django.histogram import BOUNDS
from awa_django.reading import bounded
from awa_django.storage import stats, status, survey
from awa_django.storage.queues import known_queues

# Of a statement: a scrape that takes longer is none, and must not add to the load.
PATIENCE = timedelta(seconds=5)
QUEUES = 200
# Counts of jobs stop here, by queue; sooner where there are many queues.
CAP, CAP_OF_MANY, MANY = 10_000, 1_000, 20
# Pairs of queue and kind: each has 54 series.
PAIRS = 500
# How many pairs are counted.
MOST_PAIRS = 10_000
PROCESSES = 2_000
KINDS, AVAILABLE_SAMPLED = 1_000, 1_000


def render() -> str:
    """All metrics now, as text. Raises: DatabaseError when the database does not answer in time."""
    return as_text(collect())


class Reading(NamedTuple):
    """What the gauges are made of, as read at one moment. Of an empty one they have names and no queues."""

    queues: Sequence[status.QueueStatus] = ()
    wanted: Sequence[scaling.Wanted] = ()
    cap: int = CAP
    lag: float = 0.0
    unknown_kinds: int = 0
    workers: Sequence[status.WorkerStatus] = ()
    leaders: Sequence[status.LeaderStatus] = ()


def collect() -> list[Family]:
    """All metrics now, by eleven statements in one transaction, however many jobs there are."""
    with bounded(get_settings().database, longest=PATIENCE) as connection:
        reading = _read(connection)
        totals = stats.totals(connection, limit=PAIRS)
        pairs = stats.count_totals(connection, limit=MOST_PAIRS)
    return [
        *gauges(reading),
        *_totals(totals),
        gauge(
            "awa_metrics_pairs_left_out",
            "Pairs of queue and kind that are not told (capped).",
            pairs - len(totals),
        ),
        gauge(
            "awa_metrics_truncated",
            "Whether there are more queues or kinds than are told.",
            int(len(reading.queues) >= QUEUES or pairs > len(totals)),
        ),
    ]


def read() -> Reading:
    """What the gauges are made of now, by nine statements; what ended is not among it."""
    with bounded(get_settings().database, longest=PATIENCE) as connection:
        return _read(connection)


def gauges(reading: Reading) -> list[Family]:
    """The gauges of the queue: how much there is of what, and since when."""
    return [
        *_queues(reading.queues),
        *_wanted(reading.wanted),
        gauge("awa_count_cap", "Counts of jobs stop at this number: as many or more.", reading.cap),
        gauge("awa_promotion_lag_seconds", "How long the first deferred job has been due.", reading.lag),
        gauge(
            "awa_unknown_kinds",
            "Kinds of waiting jobs that this process has no handler for.",
            reading.unknown_kinds,
        ),
        *_workers(reading.workers),
        Family(
            "awa_leader",
            "gauge",
            "Whether a worker does this duty of the whole installation.",
            [("", {"duty": each.duty}, int(each.holder is not None)) for each in reading.leaders],
        ),
    ]


def _read(connection: Any) -> Reading:
    target = get_settings().drain_target
    names = known_queues(connection, limit=QUEUES)
    cap = CAP if len(names) <= MANY else CAP_OF_MANY
    queues = status.queue_status(connection, names, cap=cap, soon=target)
    lag = status.promotion_lag(connection)
    processes = status.processes(connection, limit=PROCESSES)
    waiting = survey.waiting_kinds(connection, sample=AVAILABLE_SAMPLED, limit=KINDS)
    means = stats.mean_runs(connection, minutes=scaling.MEAN_MINUTES)
    return Reading(
        queues=queues,
        wanted=scaling.wanted(queues, processes.workers, means, target=target),
        cap=cap,
        lag=max(lag or 0.0, 0.0),
        unknown_kinds=sum(registry.find(kind) is None for kind in waiting),
        workers=processes.workers,
        leaders=processes.leaders,
    )


def _queues(queues: Sequence[status.QueueStatus]) -> Iterator[Family]:
    def by_queue(name: str, text: str, values: Iterable[float]) -> Family:
        labelled = zip(queues, values, strict=True)
        return Family(name, "gauge", text, [("", {"queue": each.queue}, value) for each, value in labelled])

    yield by_queue(
        "awa_queue_runnable", "Jobs that could run now (capped).", (each.available for each in queues)
    )
    yield by_queue(
        "awa_queue_oldest_runnable_age_seconds",
        "How long the longest waiting job that could run now has been due.",
        (max(each.available_seconds or 0.0, 0.0) for each in queues),
    )
    yield by_queue("awa_queue_running", "Jobs that run.", (each.running for each in queues))
    yield by_queue(
        "awa_queue_deferred", "Jobs for later and retries (capped).", (each.deferred for each in queues)
    )
    yield by_queue(
        "awa_queue_overdue", "Deferred jobs that are due already (capped).", (each.overdue for each in queues)
    )
    yield by_queue(
        "awa_queue_failed", "Failed jobs that are kept, of the newest ones.", (each.failed for each in queues)
    )
    yield by_queue("awa_queue_paused", "Whether the queue is paused.", (int(each.paused) for each in queues))


def _wanted(wanted: Sequence[scaling.Wanted]) -> Iterator[Family]:
    for name, text, values in (
        ("awa_wanted_slots", "Slots with which what waits would end in time.", (w.slots for w in wanted)),
        ("awa_wanted_workers", "Workers with so many slots.", (w.workers for w in wanted)),
    ):
        labelled = zip(wanted, values, strict=True)
        yield Family(name, "gauge", text, [("", {"queue": each.queue}, value) for each, value in labelled])


def _workers(workers: Sequence[status.WorkerStatus]) -> Iterator[Family]:
    stale_after = get_settings().stale_after
    counts: dict[status.WorkerState, int] = {"alive": 0, "draining": 0, "silent": 0}
    slots = 0
    for each in workers:
        state = each.state(stale_after)
        if each.supervisor is not None:
            slots += each.concurrency if state == "alive" else 0
        elif state in counts:  # of one that is gone an alarm has been raised, and has ended
            counts[state] += 1
    samples: list[Sample] = [("", {"state": state}, count) for state, count in counts.items()]
    yield Family("awa_workers", "gauge", "Workers that say they live, by state.", samples)
    yield gauge("awa_worker_slots", "Jobs that the workers alive can run at once.", slots)


def _totals(totals: Sequence[stats.Totals]) -> Iterator[Family]:
    def labels(each: stats.Totals) -> dict[str, str]:
        return {"queue": each.queue, "kind": each.kind}

    yield Family(
        "awa_runs_ended_total",
        "counter",
        "Runs that ended, by outcome.",
        [
            ("", {**labels(each), "outcome": outcome}, getattr(each, outcome))
            for each in totals
            for outcome in ("completed", "retried", "failed", "cancelled")
        ],
    )
    for name, text, histogram, seconds in (
        ("awa_run_wait_seconds", "From when a job was due until its run began.", "waits", "wait_seconds"),
        ("awa_run_duration_seconds", "From when a run began until it had ended.", "runs", "run_seconds"),
    ):
        samples = [
            sample
            for each in totals
            for sample in _histogram(labels(each), getattr(each, histogram), getattr(each, seconds))
        ]
        yield Family(name, "histogram", text, samples)


def _histogram(labels: Labels, counts: Sequence[int], seconds: float) -> Iterator[Sample]:
    padded = [*counts, *([0] * (len(BOUNDS) + 1 - len(counts)))]
    sums = list(accumulate(padded))
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), sums, strict=True):
        yield "_bucket", {**labels, "le": bound}, count
    yield "_sum", labels, seconds
    yield "_count", labels, sums[-1]
