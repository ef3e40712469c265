"""ClockComparison: a wrong clock is said once, and once more when it changes or is right again."""

from __future__ import annotations

import logging
import time

import pytest

from awa_django.worker.clocks import ClockComparison
from awa_django.worker.database import Session

pytestmark = pytest.mark.django_db(transaction=True)


def clock(ahead: float) -> float:
    return time.time_ns() / 1e9 + ahead


@pytest.mark.fault("U46", injected="a machine's clock 5 minutes ahead, 5 minutes behind, and right again")
def test_difference_is_said_when_it_changes(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    comparison = ClockComparison()
    with caplog.at_level(logging.INFO, logger="awa_django"), session.use() as connection:
        for ahead in (0, 0.5, 300, 300, 300.4, -300, -300, 0, 0):
            monkeypatch.setattr(
                "awa_django.worker.clocks.time.time", lambda ahead=ahead: time.time_ns() / 1e9 + ahead
            )
            comparison.look(connection)
    assert [record.getMessage()[:45] for record in caplog.records] == [
        "the clock of this machine is 300 s ahead of t",
        "the clock of this machine is 300 s behind the",
        "the clock of this machine agrees with the dat",
    ]


def test_slow_answer_is_no_difference(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    comparison = ClockComparison()
    now = time.time()
    readings = iter([now - 5, now + 5])
    monkeypatch.setattr("awa_django.worker.clocks.time.time", lambda: next(readings))
    with session.use() as connection:
        comparison.look(connection)
    assert caplog.records == []
