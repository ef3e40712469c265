"""The dashboard in headless Chromium under a strict Content-Security-Policy: it draws and refreshes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection

from awa_django.admin.dashboard import page as dashboard_page
from awa_django.admin.dashboard import shared
from tests.admin.browser import IN_BROWSER, Run, fill
from tests.conftest import Connect

pytestmark = IN_BROWSER

URL = "/admin/awa/dashboard/"
SIZES = ((1440, 900), (390, 844))


@pytest.fixture(autouse=True)
def fresh_each_second(monkeypatch: pytest.MonkeyPatch, strict_policy: None) -> None:
    cache.clear()
    for module in (shared, dashboard_page):
        monkeypatch.setattr(module, "FRESH_FOR", timedelta(seconds=1))


def add_history() -> None:
    """An hour of four kinds, with waits and runs that go up and down."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO awa.queue_stats (
                minute, queue, kind, completed_count, retried_count, failed_count,
                wait_histogram, run_histogram
            )
            SELECT
                date_trunc('minute', now()) - ago * interval '1 min',
                'mail',
                (ARRAY['shop.send_receipt', 'shop.charge_card', 'shop.remind_customer', 'shop.index'])[n],
                (120 / n + 40 * sin(ago / 6.0))::int,
                CASE WHEN n = 2 THEN 6 + ago % 5 ELSE 0 END,
                CASE WHEN n = 2 AND ago % 9 = 0 THEN 3 ELSE 0 END,
                array_cat(array_fill(0, ARRAY[3 + (ago / 20)]), ARRAY[60, 90, 40, 9, 2 * n, 1]),
                array_cat(array_fill(0, ARRAY[2 * n]), ARRAY[20, 80, 30, 8, 2, 1])
            FROM generate_series(0, 58) AS ago, generate_series(1, 4) AS n
            """
        )


def test_it_draws_refreshes_and_rests(in_browser: Run, connect: Connect) -> None:
    fill()
    add_history()
    refused: list[str] = []
    asked: list[str] = []

    def script(page: Any) -> None:
        page.on("console", lambda message: refused.append(message.text) if "Policy" in message.text else None)
        page.on("request", lambda request: asked.append(request.url) if "/data/" in request.url else None)
        for width, height in SIZES:
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": height})
                page.goto(URL)
                assert page.locator("[data-chart] canvas").count() == 3
                page.locator(".u-legend").first.get_by_text("completed").wait_for()
                assert page.evaluate("document.documentElement.scrollWidth") <= width

        label = page.locator("[data-chart=throughput] [role=img]").get_attribute("aria-label")
        assert "Jobs that ended per minute" in label
        page.get_by_text("The charts as a table").click()
        connect().execute("INSERT INTO awa.jobs (kind, queue) VALUES ('a', 'brand-new')")
        page.locator("[data-panel=queues]").get_by_text("brand-new").wait_for()
        assert page.locator("[data-panel=minutes] details").get_attribute("open") is not None

        page.get_by_role("button", name="Pause refreshing").click()
        page.get_by_role("button", name="Refresh again").wait_for()
        page.wait_for_timeout(500)  # for an answer that is under way
        before = len(asked)
        page.wait_for_timeout(2_500)
        assert len(asked) == before
        page.get_by_role("button", name="Refresh again").click()
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        tell = "document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(hide % "true" + tell)
        page.wait_for_timeout(1_500)
        before = len(asked)
        page.wait_for_timeout(2_500)
        assert len(asked) == before
        with page.expect_request("**/dashboard/data/"):
            page.evaluate(hide % "false" + tell)

        page.context.clear_cookies()
        page.get_by_text("You are signed out").wait_for()

    in_browser(script)
    assert refused == []


def test_it_says_that_nothing_is_there_yet(in_browser: Run) -> None:
    def script(page: Any) -> None:
        page.goto(URL)
        page.get_by_text("No worker is running: jobs wait").wait_for()
        assert page.locator("[data-chart] canvas").count() == 0
        assert page.locator("[data-chart] .awa-empty").all_inner_texts() == [
            "No job ended in the last hour.",
            "Wait: nothing was measured in the last hour.",
            "Run time: nothing was measured in the last hour.",
        ]

    in_browser(script)
