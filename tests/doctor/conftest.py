"""What holds for all tests of the doctor."""

from __future__ import annotations

import pytest

from awa_django import doctor


@pytest.fixture(autouse=True)
def others_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests before have left in the tables is no finding here."""
    monkeypatch.setattr(doctor, "DEAD_AT_LEAST", 10**12)
