"""A worker for the queue in which the jobs of these tests wait."""

from __future__ import annotations

import pytest

from tests.why.asked import add_worker, run_sql


@pytest.fixture
def served(db: None) -> None:
    """A worker of the queue ``default`` is alive, has leases of all duties and knows ``tests.job``."""
    add_worker()
    run_sql("INSERT INTO awa.job_kinds (kind, queue) VALUES ('tests.job', 'default')")
    run_sql("UPDATE awa.leaders SET holder = 'w', expires_at = now() + interval '1 minute'")
