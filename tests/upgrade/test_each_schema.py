"""From each version of the schema to this one, with a job in each state; and back, and forward again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awa_django.storage.inspect import SCHEMA_VERSION
from tests.clusters import Cluster
from tests.fault_report import Observe
from tests.schema.test_migrations import catalogue
from tests.upgrade.conftest import Site, Started
from tests.upgrade.releases import THIS, Release
from tests.upgrade.states import jobs, leave_jobs, run_on, same
from tests.worker_fixtures import Database

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(600)]

# The first that had workers. The migrations 0005 and 0006 came in one release.
FIRST, WITHOUT_RELEASE = 4, {5}
EARLIER = [schema for schema in range(FIRST, SCHEMA_VERSION) if schema not in WITHOUT_RELEASE]


@pytest.mark.parametrize("schema", EARLIER)
@pytest.mark.fault("U57", injected="migrate from each earlier schema with a job in each state; and back")
def test_upgrade_and_way_back(
    schema: int,
    releases: Callable[[int], Release],
    server: Cluster,
    site: Site,
    started: Started[Any],
    logs: Callable[[], Path],
    observe: Observe,
) -> None:
    old = releases(schema)
    old.manage(site.url, "migrate")
    leave_jobs(old, site, started, logs)
    before = jobs(site)

    THIS.manage(site.url, "migrate")
    assert same(before, jobs(site))
    with server.connect() as connection:  # where this release was installed in one go
        assert catalogue(site.rows) == catalogue(Database(connection).rows)
    run_on(THIS, site, started, logs)

    ended = jobs(site)
    THIS.manage(site.url, "migrate", "awa", old.newest_migration)
    assert same(ended, jobs(site))
    old.python(site.url, "handlers.record.enqueue(number=6)")
    assert started(old.worker(site.url, logs(), "--drain")).wait(60) == 0
    assert site.effects("record") == [1, 2, 3, 6]
    old.manage(site.url, "awa_doctor")

    THIS.manage(site.url, "migrate")
    with server.connect() as connection:
        assert catalogue(site.rows) == catalogue(Database(connection).rows)
    THIS.manage(site.url, "awa_doctor")
    observe("no job changed; what waited ran, what was running was rescued; and back, and forward again")
