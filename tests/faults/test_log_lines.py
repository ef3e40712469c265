"""What is in a row forges no line of the worker's log."""

from __future__ import annotations

import re

import pytest

from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = pytest.mark.acceptance

FORGED = "k\n2026-01-01 00:00:00,000 ERROR awa_django.worker: forged\x1b[2J"


@pytest.mark.fault("F88", injected="line ends and escapes in the kind of a lost run, through a real worker")
def test_a_kind_forges_no_record(database: Database, start_worker: StartWorker) -> None:
    database.connection.execute(
        "INSERT INTO awa.jobs_hot (kind, state, worker, attempt, run_lease, attempted_at, heartbeat_at) "
        "VALUES (%s, 'running', 'gone', 1, 1, now() - interval '1 hour', now() - interval '1 hour')",
        [FORGED],
    )
    worker = start_worker(awa={"SWEEP_INTERVAL": 0.5})
    wait_until(lambda: "is rescued" in worker.text(), message=worker.text)
    assert worker.stop() == 0
    text = worker.text()
    assert "forged\\x1b[2J" in text
    assert "\x1b" not in text
    assert not re.search("^2026-01-01", text, re.MULTILINE)
