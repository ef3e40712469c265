"""A rolling upgrade under load: migrate, new processes beside old ones, the old ones end, the new lead."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fault_report import Observe
from tests.upgrade.conftest import Site, Started
from tests.upgrade.releases import THIS, Release
from tests.upgrade.states import SOON
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(600)]

ENDED = "completed_count + retried_count + failed_count + cancelled_count"


@pytest.mark.fault("F76", injected="a rolling upgrade under load, from the release before to this one")
@pytest.mark.fault("U57", injected="migrate under load; old and new producers and workers side by side")
def test_rolling_upgrade(
    previous: Release, site: Site, started: Started[Any], logs: Callable[[], Path], observe: Observe
) -> None:
    previous.manage(site.url, "migrate")
    old_worker = started(previous.worker(site.url, logs(), **SOON))
    old_producer = started(previous.producer(site.url, logs()))
    wait_until(lambda: leads(site, everything=True), timeout=60, message=old_worker.text)
    [(old_leader,)] = site.rows("SELECT DISTINCT holder FROM awa.leaders")
    runs(site, 50)

    THIS.manage(site.url, "migrate")
    runs(site, 50)
    [old_child] = old_worker.child_pids()
    os.kill(old_child, signal.SIGKILL)
    # A worker that runs replaces its child, though it would not start itself any more.
    wait_until(lambda: runs_in(site, old_worker.child_pids()), timeout=60, message=old_worker.text)

    new_worker = started(THIS.worker(site.url, logs(), **SOON))
    new_producer = started(THIS.producer(site.url, logs()))
    wait_until(lambda: runs_in(site, new_worker.child_pids()), timeout=60, message=new_worker.text)
    beside = Counter(site.effects("record"))
    wait_until(lambda: len(new_producer.acknowledged()) > 100, timeout=60, message=new_producer.log.read_text)
    wait_until(lambda: runs_in(site, old_worker.child_pids()), message=old_worker.text)
    assert site.value("SELECT holder FROM awa.leaders WHERE duty = 'stats'") == old_leader

    # The old producer ends after its worker: its jobs are run by the new one.
    assert old_worker.stop(60) == 0
    wait_until(lambda: leads(site, but=old_leader), timeout=60, message=new_worker.text)
    runs(site, 50)
    acknowledged = Counter(old_producer.stop()) + Counter(new_producer.stop())
    wait_until(lambda: set(site.states()) == {"completed"}, timeout=60, message=lambda: str(site.states()))
    wait_until(lambda: not site.value("SELECT count(*) FROM awa.queue_stats_deltas"), timeout=60)
    assert new_worker.stop(60) == 0

    effects = Counter(site.effects("record"))
    assert not acknowledged - effects
    twice = (effects - acknowledged).total()
    assert twice <= 20  # those that ran in the child that was killed
    assert site.states()["completed"] == acknowledged.total()
    THIS.manage(site.url, "awa_doctor")
    # Every end is counted once, whoever folded it; metrics count from when a new worker leads.
    ended = site.value(f"SELECT sum({ENDED}) FROM awa.queue_stats")
    assert site.value("SELECT sum(completed_count) FROM awa.queue_stats") == acknowledged.total()
    assert 0 < site.value(f"SELECT sum({ENDED}) FROM awa.queue_totals") <= ended
    for log in (old_worker, new_worker):
        assert "Traceback" not in log.text()
    observe(
        f"schema {previous.schema} to {THIS.schema}: {acknowledged.total()} acknowledged jobs, each ended "
        f"once and counted once ({beside.total()} before the new worker came), {twice} run twice, of a "
        "child that was killed; the old worker replaced that child; duties went over; doctor clean"
    )


def runs(site: Site, more: int) -> None:
    """So many more jobs come to their end."""
    count = len(site.effects("record"))
    wait_until(lambda: len(site.effects("record")) >= count + more, timeout=60)


def runs_in(site: Site, pids: list[int]) -> bool:
    """Whether one of these processes has run a job in the last seconds."""
    return bool(
        site.value(
            "SELECT count(*) FROM effects WHERE pid = ANY (%s) AND at > clock_timestamp() - interval '3 s'",
            pids,
        )
    )


def leads(site: Site, *, everything: bool = False, but: str | None = None) -> bool:
    """Whether every duty has a holder, and none of them is ``but``."""
    holders = {holder for (holder,) in site.rows("SELECT holder FROM awa.leaders")}
    return None not in holders and but not in holders and (len(holders) == 1 or not everything)
