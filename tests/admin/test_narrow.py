"""The pages on a small telephone, and in colours that the reader has chosen."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from tests.admin.browser import UNDER_STRICT_POLICY, Run, fill
from tests.admin.hostile import lists
from tests.factories import insert_job

pytestmark = UNDER_STRICT_POLICY

# How far the page scrolls sideways, and what of it is reached only by scrolling the part that it is in.
WIDER = "document.documentElement.scrollWidth - innerWidth"
BEHIND = """
() => [...document.querySelectorAll(".awa-page :is(button, select, input, summary, a)")]
    .filter((each) => each.checkVisibility() && each.type !== "hidden")
    .filter((each) => {
        const box = each.getBoundingClientRect();
        const part = each.closest(".awa-scroll")?.getBoundingClientRect() ?? {left: 0, right: innerWidth};
        return box.left < part.left || box.right > part.right;
    })
    .map((each) => each.outerHTML)
"""
# What is drawn by its background only is not drawn where the reader has chosen the colours.
UNDRAWN = """
() => {
    const canvas = getComputedStyle(document.body).backgroundColor;
    const isDrawn = (each, part) => {
        const style = getComputedStyle(each, part);
        return parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none"
            && style.borderTopColor !== canvas;
    };
    const undrawn = (selector, part) => [...document.querySelectorAll(selector)]
        .filter((each) => each.checkVisibility() && !isDrawn(each, part))
        .map((each) => each.outerHTML);
    return [
        ...undrawn(":is(.awa-page, .awa-dashboard) :is(button, .button), .awa-state"),
        ...undrawn(".awa-event", "::before"),
    ];
}
"""


def test_no_page_is_wider_than_a_small_telephone(in_browser: Run) -> None:
    failed = fill()
    insert_job(queue="a-queue-whose-name-" + "is-" * 30 + "long")
    urls = [url for url in lists() if url.count("/") > 3]
    urls += [
        reverse("admin:awa_dashboard_changelist"),
        reverse("admin:awa_hotjob_change", args=[failed]),
    ]

    def script(page: Any) -> None:
        page.set_viewport_size({"width": 320, "height": 568})
        for url in urls:
            page.goto(url)
            assert page.evaluate(WIDER) <= 0, url

    in_browser(script)


@pytest.mark.parametrize("width", [320, 390])
def test_queues_are_paused_on_a_telephone_without_scrolling_sideways(in_browser: Run, width: int) -> None:
    fill()

    def script(page: Any) -> None:
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(reverse("admin:awa_queuemeta_changelist"))
        for summary in page.locator(".awa-pause-form summary").all():
            summary.click()
        assert page.evaluate(BEHIND) == []
        row = page.get_by_role("row", name="mail")
        assert row.get_by_role("cell").count() == 6  # still a table to whom it is read
        assert page.get_by_role("columnheader", name="Deferred").count() == 1
        row.get_by_role("button", name="Pause").click()
        page.get_by_text("Queue mail is paused.").wait_for()

    in_browser(script)


def test_what_tells_by_colour_has_an_edge_where_colours_are_the_readers(in_browser: Run) -> None:
    failed = fill()
    urls = [
        reverse("admin:awa_dashboard_changelist"),
        reverse("admin:awa_hotjob_changelist"),
        reverse("admin:awa_queuemeta_changelist"),
        reverse("admin:awa_hotjob_change", args=[failed]),
    ]

    def script(page: Any) -> None:
        page.emulate_media(forced_colors="active")
        for url in urls:
            page.goto(url)
            assert page.evaluate("matchMedia('(forced-colors: active)').matches")
            assert page.evaluate(UNDRAWN) == [], url

    in_browser(script)
