"""Migrations of a database with millions of jobs, a step at a time, beside a producer and a worker.

``UPGRADE_ROWS`` is the number of jobs of the larger case.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awa_django.migrations._run_sql import LOCK_TIMEOUT
from tests.fault_report import Observe
from tests.size.fill import fill
from tests.upgrade.conftest import Site, Started
from tests.upgrade.releases import THIS, Release
from tests.upgrade.test_each_schema import FIRST
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.measures, pytest.mark.timeout(3_600)]

# What a producer and a worker do all the time, on a row of their own.
INSERT = "INSERT INTO awa.jobs_hot (kind, queue) VALUES ('probe', 'nobody') RETURNING id"
CLAIM = "UPDATE awa.jobs_hot SET state = 'running', attempt = 1, heartbeat_at = now() WHERE id = %s"
FINISH = "DELETE FROM awa.jobs_hot WHERE id = %s"


class Probe:
    """Does all of that every few milliseconds, and notes the statement that took longest."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    @contextmanager
    def running(self) -> Iterator[Probe]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join(60)

    def since_last(self) -> float:
        """The longest statement, in seconds, since this was asked before."""
        longest, self.longest = self.longest, 0.0
        return longest

    def _go_on(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(0.002):
                row = self._timed(connection, INSERT).fetchone()
                assert row is not None
                self._timed(connection, CLAIM, row[0])
                self._timed(connection, FINISH, row[0])

    def _timed(self, connection: psycopg.Connection[Any], text: str, *values: object) -> psycopg.Cursor[Any]:
        began = time.monotonic()
        cursor = connection.execute(text.encode(), values)
        self.longest = max(self.longest, time.monotonic() - began)
        return cursor


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            50_000, marks=pytest.mark.fault("U57", injected="each migration over 50,000 jobs, under load")
        ),
        pytest.param(int(os.environ.get("UPGRADE_ROWS", "5_000_000")), id="large"),
    ],
)
def test_no_migration_blocks_for_long(
    rows: int,
    releases: Callable[[int], Release],
    site: Site,
    started: Started[Any],
    logs: Callable[[], Path],
    observe: Observe,
) -> None:
    old = releases(FIRST)
    old.manage(site.url, "migrate")
    fill(site.connection, hot=rows // 2, deferred=rows // 2, say=print)
    worker = started(old.worker(site.url, logs(), "--queues", "upgrade,default"))
    producer = started(old.producer(site.url, logs()))
    wait_until(lambda: len(site.effects("record")) > 50, timeout=300, message=worker.text)

    told = []
    with Probe(site.url).running() as probe:
        time.sleep(10)
        usual = probe.since_last()
        for number in steps(old):
            began = time.monotonic()
            THIS.manage(site.url, "migrate", "awa", number)
            took, longest = time.monotonic() - began, probe.since_last()
            told.append(f"{number}: {longest * 1000:.0f} ms")
            print(f"{number}: the command took {took:.1f} s, the longest statement beside it {longest:.3f} s")
            assert longest < LOCK_TIMEOUT / 1000 + 1
        count = len(site.effects("record"))
        wait_until(lambda: len(site.effects("record")) > count + 20, timeout=60, message=worker.text)
    assert worker.process.poll() is None
    acknowledged = Counter(producer.stop())
    wait_until(lambda: Counter(site.effects("record")) == acknowledged, timeout=300, message=worker.text)
    assert worker.stop(60) == 0
    line = f"{rows:,} jobs; longest statement beside each: {', '.join(told)}; usual: {usual * 1000:.0f} ms"
    print(line)
    observe(line)


def steps(old: Release) -> list[str]:
    """The numbers of the migrations since."""
    numbers = sorted(path.name[:4] for path in THIS.directory.glob("awa_django/migrations/[0-9]*.py"))
    return [number for number in numbers if number > old.newest_migration]
