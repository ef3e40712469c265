"""The soak in short, with a seed of its own each time; ``make soak`` is the long one."""

from __future__ import annotations

import secrets

import pytest

from tests.soak.run import Soak

SECONDS = 45.0


@pytest.mark.system
@pytest.mark.acceptance
@pytest.mark.timeout(400)
def test_soak_accounts_for_every_job() -> None:
    report = Soak(seconds=SECONDS, seed=secrets.randbelow(10**6)).run()
    print(report.text())
    assert report.violations == [], report.text()
