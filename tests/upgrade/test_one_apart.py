"""This code on the schema of the release before, and that release on this schema: who works, who refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fault_report import Observe
from tests.upgrade.conftest import Site, Started
from tests.upgrade.releases import THIS, Release
from tests.worker_process import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(600)]


@pytest.mark.fault("F76", injected="this release on the schema of the one before, which has jobs")
@pytest.mark.fault("U57", injected="this release on the schema of the one before")
def test_before_migrate(
    previous: Release, site: Site, started: Started[Any], logs: Callable[[], Path], observe: Observe
) -> None:
    previous.manage(site.url, "migrate")
    previous.python(site.url, "handlers.record.enqueue_many([{'number': n} for n in range(10)])")

    told = (
        f"the awa schema is at version {previous.schema}, this code needs {THIS.schema}: "
        "run `manage.py migrate awa`"
    )
    refuses_to_work(THIS, site, started(THIS.worker(site.url, logs(), "--drain")), told)
    assert f"{previous.schema}, not {THIS.schema}" in THIS.manage(site.url, "awa_status")
    assert "Run `manage.py migrate awa`" in THIS.manage(site.url, "awa_doctor", code=1)
    assert site.rows("SELECT DISTINCT state::text, attempt FROM awa.jobs") == [("available", 0)]

    # Nobody promises it, as a migration may change what enqueue writes to; the last one did not.
    THIS.python(site.url, "handlers.record.enqueue(number=10)")
    assert started(previous.worker(site.url, logs(), "--drain", "--max-jobs", "5")).wait(60) == 0
    THIS.manage(site.url, "migrate")
    assert started(THIS.worker(site.url, logs(), "--drain")).wait(60) == 0
    assert site.effects("record") == list(range(11))
    THIS.manage(site.url, "awa_doctor")
    observe(
        f"code of schema {THIS.schema} on schema {previous.schema}: its worker exits with 1 and says "
        "`manage.py migrate awa`, check and doctor too; no job touched; the old worker runs on"
    )


@pytest.mark.fault("F76", injected="the release before on the schema of this one")
@pytest.mark.fault("U57", injected="the release before on the schema of this one: start, enqueue, operate")
def test_after_migrate(
    previous: Release, site: Site, started: Started[Any], logs: Callable[[], Path], observe: Observe
) -> None:
    THIS.manage(site.url, "migrate")
    told = (
        f"the awa schema is at version {THIS.schema}, newer than the {previous.schema} this code knows: "
        "upgrade awa-django"
    )
    refuses_to_work(previous, site, started(previous.worker(site.url, logs(), "--drain")), told)
    assert "upgrade awa-django" in previous.manage(site.url, "awa_doctor", code=1)

    # Sites of the release before go on meanwhile.
    previous.python(site.url, OLD_SITE)
    assert started(THIS.worker(site.url, logs(), "--drain")).wait(60) == 0
    assert site.effects("record") == [1, 2, 3, 4, 7]
    assert site.states() == {"completed": 5, "cancelled": 1, "scheduled": 1, "available": 1}
    THIS.manage(site.url, "awa_doctor")
    observe(
        f"code of schema {previous.schema} on schema {THIS.schema}: its worker exits with 1 and says "
        "`upgrade`; it enqueues (one, many, unique, later), cancels, retries and pauses as before"
    )


def refuses_to_work(release: Release, site: Site, worker: WorkerProcess, told: str) -> None:
    """The worker ends at once and says what to do, and so does the check."""
    assert worker.wait(60) == 1
    assert told in worker.text()
    assert "Traceback" not in worker.text()
    assert told in release.manage(site.url, "check", "--database", "default")


OLD_SITE = """
handlers.record.enqueue(number=1)
handlers.record.enqueue_many([{"number": 2}, {"number": 3}])
once = handlers.record.using(unique=Unique(args=True))
assert once.enqueue(number=4).created
assert not once.enqueue(number=4).created
later = handlers.record.using(delay=3600).enqueue(number=5)
cancelled = handlers.record.using(delay=3600).enqueue(number=6)
retried = handlers.record.enqueue(number=7)
operations.cancel([cancelled.id, retried.id], by="ann")
operations.retry([retried.id])
operations.pause_queue("paused", by="ann")
handlers.record.using(queue="paused").enqueue(number=8)
"""


@pytest.mark.fault("F76", injected="the tests of the release before, on the schema of this one")
def test_tests_of_the_release_before(previous: Release, site: Site, observe: Observe) -> None:
    test_database = f"test_{site.name}"
    site.connection.execute(f"CREATE DATABASE {test_database}".encode())
    try:
        THIS.manage(site.url.replace(site.name, test_database), "migrate")
        done = previous.run(
            site.url,
            *("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:randomly", "--reuse-db"),
            *THEIR_TESTS,
        )
    finally:
        site.connection.execute(f"DROP DATABASE {test_database} WITH (FORCE)".encode())
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    observe(f"its tests of enqueue, unique jobs, models and operations: {done.stdout.splitlines()[-1]}")


THEIR_TESTS = (
    "tests/test_enqueue.py",
    "tests/test_enqueue_many.py",
    "tests/test_enqueue_unique.py",
    "tests/test_models.py",
    "tests/test_operations.py",
)
