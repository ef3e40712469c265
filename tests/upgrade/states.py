"""A job in each state, left there by a release's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.upgrade.conftest import Site, Started
from tests.upgrade.releases import Release
from tests.waiting import wait_until

SOON = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 6.0, "SWEEP_INTERVAL": 0.5, "PROMOTE_INTERVAL": 0.05}
EVERY_STATE = {
    "available": 2,
    "running": 1,
    "completed": 1,
    "failed": 1,
    "cancelled": 1,
    "scheduled": 1,
    "retryable": 1,
}

ENDING = """
handlers.record.enqueue(number=1)
handlers.fail_for_good.enqueue()
handlers.cancel_itself.enqueue()
"""
# The second one that is available holds a key.
WAITING = """
handlers.record.enqueue(number=2)
handlers.record.using(unique=Unique(args=True)).enqueue(number=3)
handlers.record.using(delay=3600).enqueue(number=4)
print(handlers.record.using(delay=3600).enqueue(number=5).id)
"""
AGAIN = "print(handlers.record.using(unique=Unique(args=True)).enqueue(number=3).created)"


def leave_jobs(release: Release, site: Site, started: Started[Any], logs: Callable[[], Path]) -> None:
    """As many as ``EVERY_STATE`` says; the worker of the one that runs is dead."""
    release.python(site.url, ENDING)
    assert started(release.worker(site.url, logs(), "--drain")).wait(60) == 0
    release.python(site.url, "handlers.sleep_first.enqueue(seconds=600)")
    worker = started(release.worker(site.url, logs(), **SOON))
    wait_until(lambda: site.effects("started"), timeout=60, message=worker.text)
    worker.kill_all()
    job_id = int(release.python(site.url, WAITING))
    site.connection.execute(
        "UPDATE awa.scheduled_jobs SET state = 'retryable', attempt = 1, run_lease = 1 WHERE id = %s",
        [job_id],
    )
    assert site.states() == EVERY_STATE


def jobs(site: Site) -> list[dict[str, Any]]:
    """Every job as it is, all of its columns."""
    return [row for (row,) in site.rows("SELECT to_jsonb(job) FROM awa.jobs AS job ORDER BY id")]


def same(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Whether the columns that both have are alike."""
    return len(before) == len(after) and all(
        old[column] == new[column]
        for old, new in zip(before, after, strict=True)
        for column in old.keys() & new.keys()
    )


def run_on(release: Release, site: Site, started: Started[Any], logs: Callable[[], Path]) -> None:
    """A worker of that release runs what waits and again what was running; keys still hold."""
    assert release.python(site.url, AGAIN).strip() == "False"
    worker = started(release.worker(site.url, logs(), **SOON))
    expected = {**EVERY_STATE, "available": 0, "running": 0, "completed": 4}
    wait_until(
        lambda: {state: count for state, count in expected.items() if count} == site.states(),
        timeout=60,
        message=worker.text,
    )
    assert worker.stop(60) == 0
    assert site.effects("record") == [1, 2, 3]
    release.manage(site.url, "awa_doctor")
