"""What holds for all tests of the doctor."""

from __future__ import annotations

import pytest

from awa_django import doctor
from awa_django.doctor import measures


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a notification arrives late here is no finding."""
    monkeypatch.setattr(measures, "NOTIFIED_WITHIN", 60.0)
    monkeypatch.setattr(measures, "NOTIFIED_AT_ALL", 60.0)


@pytest.fixture(autouse=True)
def others_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests before have left in the tables is no finding here."""
    monkeypatch.setattr(doctor, "DEAD_AT_LEAST", 10**12)
