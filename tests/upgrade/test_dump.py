"""pg_dump of a queue at work, and pg_restore into a new database: jobs run on there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.clusters import binary
from tests.fault_report import Observe
from tests.upgrade.conftest import MakeSite, Site, Started
from tests.upgrade.releases import THIS
from tests.upgrade.states import AGAIN, SOON, jobs, leave_jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(600)]


@pytest.mark.fault("U57", injected="pg_dump of the database under load, pg_restore into another")
def test_dump_and_restore(
    site: Site,
    make_site: MakeSite,
    started: Started[Any],
    logs: Callable[[], Path],
    tmp_path: Path,
    observe: Observe,
) -> None:
    THIS.manage(site.url, "migrate")
    leave_jobs(THIS, site, started, logs)
    site.connection.execute("UPDATE awa.jobs_hot SET queue = 'elsewhere' WHERE unique_key IS NOT NULL")
    producer = started(THIS.producer(site.url, logs()))
    worker = started(THIS.worker(site.url, logs(), "--queues", "default", **SOON))
    wait_until(lambda: len(site.effects("record")) > 50, timeout=60, message=worker.text)
    dump = tmp_path / "dump"
    tool("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={site.url}")
    assert worker.process.poll() is None
    acknowledged = producer.stop()
    assert worker.stop(60) == 0

    restored = make_site()
    tool("pg_restore", "--exit-on-error", f"--dbname={restored.url}", str(dump))
    assert restored.value("SELECT last_value FROM awa.jobs_id_seq") >= restored.value(
        "SELECT max(id) FROM awa.jobs"
    )
    newest = restored.value("SELECT max(id) FROM awa.jobs")
    THIS.manage(restored.url, "awa_doctor")
    # The key that a job held is held.
    assert THIS.python(restored.url, AGAIN).strip() == "False"
    with pytest.raises(psycopg.errors.UniqueViolation):
        restored.connection.execute(
            "INSERT INTO awa.jobs (kind, unique_key, unique_states) "
            "SELECT kind, unique_key, unique_states FROM awa.jobs_hot WHERE queue = 'elsewhere'"
        )
    assert int(THIS.python(restored.url, "print(handlers.record.enqueue(number=0).id)")) > newest
    unfinished = restored.value("SELECT count(*) FROM awa.jobs_hot WHERE state IN ('available', 'running')")
    worker = started(THIS.worker(restored.url, logs(), "--queues", "default,elsewhere", **SOON))
    wait_until(lambda: ended(restored), timeout=60, message=worker.text)
    assert worker.stop(60) == 0
    assert set(restored.effects("record")) <= {0, 1, 2, 3, *acknowledged}
    THIS.manage(restored.url, "awa_doctor")
    observe(
        f"{len(restored.effects('record'))} jobs run, {unfinished} of them after the restore; "
        "the sequence is not behind, keys hold, what ran when it was dumped runs again; doctor clean"
    )


def test_schema_by_itself(
    site: Site, make_site: MakeSite, started: Started[Any], logs: Callable[[], Path], tmp_path: Path
) -> None:
    THIS.manage(site.url, "migrate")
    leave_jobs(THIS, site, started, logs)
    dump = tmp_path / "dump"
    tool("pg_dump", "--schema=awa", "--format=custom", f"--file={dump}", f"--dbname={site.url}")
    restored = make_site()
    tool("pg_restore", "--exit-on-error", f"--dbname={restored.url}", str(dump))
    assert jobs(restored) == jobs(site)
    # Django's own tables are not there yet: it finds the work of the app's migrations done.
    THIS.manage(restored.url, "migrate")
    assert jobs(restored) == jobs(site)
    THIS.manage(restored.url, "awa_doctor")


def ended(site: Site) -> bool:
    """Whether nothing waits and nothing runs any more, the job of the worker that died neither."""
    return not site.value("SELECT count(*) FROM awa.jobs_hot WHERE state IN ('available', 'running')")


def tool(name: str, *arguments: str) -> None:
    """One of PostgreSQL's programs, of the server's own release."""
    done = subprocess.run(
        [binary(name), *arguments],
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
