"""What docs/retries.md shows is run here, so that it stays true."""

from __future__ import annotations

from typing import Any

import pytest

from awa_django.testing import drain
from tests.test_docs import blocks

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(registered: None) -> dict[str, Any]:
    """The names that the page's first block declares, as its module would."""
    names: dict[str, Any] = {"__name__": "shop.retried.tasks"}
    exec(blocks("docs/retries.md", "python")[0], names)
    return names


def test_the_page_runs(page: dict[str, Any]) -> None:
    for block in blocks("docs/retries.md", "python")[1:]:
        exec(block, page)
    page["export"].enqueue(report_id=1)
    page["export"].enqueue(report_id=-1)
    assert sorted(run.outcome for run in drain()) == ["completed", "completed", "completed", "failed"]
    handler = page["export"].handler
    assert [handler.retry.delay(attempt).total_seconds() for attempt in (1, 2)] == [60, 120]
    assert page["push"].handler.max_age.total_seconds() == 1800
    charge = page["charge"].handler
    assert charge.retry_on == (ConnectionError, TimeoutError)
    assert charge.discard_on == (page["CardDeclined"],)
