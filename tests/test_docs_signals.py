"""What docs/signals.md shows is run here, so that it stays true."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from awa_django import registry, signals
from awa_django.testing import drain
from tests.conftest import PROJECT_DIR
from tests.test_docs import blocks

pytestmark = pytest.mark.django_db
PAGE = "docs/signals.md"


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """The namespace of a module with jobs; they and the receivers are forgotten after."""
    receivers = {signal: list(signal.receivers) for signal in signals.BY_END.values()}
    yield {"__name__": "shop.told.tasks"}
    for signal, before in receivers.items():
        signal.receivers = before
    for handler in registry.handlers():
        if handler.function.__module__ == "shop.told.tasks":
            registry.unregister(handler)


def test_the_receivers_of_the_page_hear(names: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    exec(blocks(PAGE, "python")[0], names)
    heard: list[signals.EndedRun] = []

    def hear(run: signals.EndedRun, **_: Any) -> None:
        heard.append(run)

    signals.job_completed.connect(hear, sender=names["send_receipt"])
    names["send_receipt"].enqueue(order_id=3)
    drain()
    assert [(run.how, run.args) for run in heard] == [("completed", {"order_id": 3})]

    broken = names["job"](kind="shop.told.broken", retry_on=())(_raise)
    try:
        broken.enqueue()
        with caplog.at_level(logging.ERROR):
            drain()
    finally:
        registry.unregister(broken.handler)
    assert any("shop.told.broken" in record.getMessage() for record in caplog.records)


def _raise() -> None:
    raise ValueError("no")


def test_every_signal_and_each_field_of_a_run_is_on_the_page() -> None:
    page = (PROJECT_DIR / PAGE).read_text(encoding="utf-8")
    names = {name for name in vars(signals) if name.startswith("job_")}
    fields = set(signals.EndedRun.__dataclass_fields__)
    assert {name for name in names | fields if f"`{name}`" not in page} == set()
