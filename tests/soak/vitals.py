"""Vitals: what the workers' processes and the database use, over time; flat, or something leaks."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import psutil
import psycopg

from tests.soak.cluster import SoakCluster
from tests.soak.workers import SoakWorker

SAMPLE_EVERY = 2.0
# Fewer samples than this in a half are no trend: connections are opened when they are first needed.
ENOUGH = 20
# By how much the median of the second half may exceed that of the first: a share, and a constant.
SLACK = {
    "threads": (0.10, 3.0),
    "descriptors": (0.10, 6.0),
    "megabytes": (0.15, 12.0),
    "connections": (0.25, 10.0),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """Medians of the halves of a series.

    ``usual`` is the highest first half among the children: one that was started while the database
    was away opens its connections late in its life, and is held against its siblings.
    """

    what: str
    first: float
    second: float
    highest: float
    usual: float

    @property
    def is_flat(self) -> bool:
        share, constant = SLACK[self.what.split()[-1]]
        return self.second <= self.usual * (1 + share) + constant


class Vitals:
    """Samples the worker that is never killed, process by process, and the sessions of all workers."""

    def __init__(self, cluster: SoakCluster, veteran: SoakWorker) -> None:
        self._cluster = cluster
        self._veteran = veteran
        self._series: dict[str, list[float]] = defaultdict(list)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="vitals")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(30)

    def trends(self) -> list[Trend]:
        return trends_of(self._series)

    def _serve(self) -> None:
        while not self._stopping.wait(SAMPLE_EVERY):
            with contextlib.suppress(psutil.Error, psycopg.Error):
                self._sample()

    def _sample(self) -> None:
        names = {self._veteran.process.pid: "supervisor"}
        names |= {pid: f"child {pid}" for pid in self._veteran.child_pids()}
        for pid, name in names.items():
            process = psutil.Process(pid)
            with process.oneshot():
                self._series[f"{name} threads"].append(process.num_threads())
                self._series[f"{name} descriptors"].append(process.num_fds())
                self._series[f"{name} megabytes"].append(process.memory_info().rss / 2**20)
        with self._cluster.connect(connect_timeout=2) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND application_name <> 'soak'"
            ).fetchone()
            assert row is not None
            self._series["connections"].append(row[0])


def trends_of(series: Mapping[str, list[float]]) -> list[Trend]:
    """One for each process and measure; the first tenth of each series is warm-up."""
    halves = {}
    for what, values in sorted(series.items()):
        steady = values[len(values) // 10 :]
        middle = len(steady) // 2
        if middle >= ENOUGH:
            halves[what] = median(steady[:middle]), median(steady[middle:]), max(steady)
    usual: dict[str, float] = defaultdict(float)
    for what, (first, _, _) in halves.items():
        usual[_role(what)] = max(usual[_role(what)], first)
    return [Trend(what, *values, usual=usual[_role(what)]) for what, values in halves.items()]


def _role(what: str) -> str:
    """`child 4711 threads` -> `child threads`."""
    return " ".join(word for word in what.split() if not word.isdigit())
