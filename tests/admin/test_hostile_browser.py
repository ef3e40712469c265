"""Hostile texts on every page in headless Chromium: no script runs, and no element comes of a text."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from tests.admin.browser import IN_BROWSER, Run
from tests.admin.hostile import HOSTILE, details, fill, filtered, lists

pytestmark = IN_BROWSER


# What the texts call when one of them gets to run.
WATCH = "window.awaHits = 0; window.awaHit = () => { window.awaHits += 1; return true; };"
# Whatever waits for somebody to come near it, is come near to.
TOUCH = """
() => {
    for (const element of document.querySelectorAll("#content *, .breadcrumbs *, #user-tools *")) {
        for (const name of ["mouseover", "pointerover", "focus"]) element.dispatchEvent(new Event(name));
    }
    return [window.awaHits, document.querySelectorAll(".awa-hit, awa-hit, iframe, base, math").length];
}
"""


# Pauses the queues without going to the page that says so.
PAUSE = """
async ([url, queues]) => {
    const csrfmiddlewaretoken = document.querySelector("[name=csrfmiddlewaretoken]").value;
    for (const queue of queues) {
        const body = new URLSearchParams({queue, csrfmiddlewaretoken});
        await fetch(url, {method: "POST", body, redirect: "manual"});
    }
}
"""
AT_ONCE = 9


@pytest.mark.fault("F84", injected="the same in Chromium")
def test_no_text_runs_or_becomes_an_element(in_browser: Run) -> None:
    hot, deferred = fill(HOSTILE)
    urls = [*lists(), *details("deferredjob", deferred[0])]
    for number, text in enumerate(HOSTILE):
        # Its page, and by turns one of the others, of which test_hostile.py reads each with every text.
        echoes, (arguments, change, live) = list(filtered(text)), sorted(details("hotjob", hot[number]))
        urls += [change, (arguments, live, echoes[number // 3 % len(echoes)])[number % 3]]
    elsewhere: list[str] = []
    problems: list[str] = []

    def script(page: Any) -> None:
        page.add_init_script(WATCH)
        page.on("request", lambda request: elsewhere.append(request.url) if "evil" in request.url else None)
        here = page.context.new_page()
        here.goto("/admin/")
        origin = here.url.removesuffix("/admin/")
        here.close()
        for url in urls:
            page.goto(url)
            if page.evaluate(TOUCH) != [0, 0]:
                problems.append(url)
            assert page.url.startswith(origin)
        # What was typed comes back in messages.
        queues = reverse("admin:awa_queuemeta_changelist")
        page.goto(queues)
        for first in range(0, len(HOSTILE), AT_ONCE):
            texts = HOSTILE[first : first + AT_ONCE]
            page.evaluate(PAUSE, [reverse("admin:awa_queuemeta_pause"), texts])
            page.goto(queues)
            is_harmless = page.evaluate(TOUCH) == [0, 0]
            if not is_harmless or page.locator(".messagelist li").count() != len(texts):
                problems.append(f"paused {texts}")

    in_browser(script)
    assert problems == []
    assert [url for url in elsewhere if not url.startswith("http://localhost")] == []


def test_the_browser_would_notice(in_browser: Run) -> None:
    """A page that shows the texts raw runs them: what is asked of the pages above is asked well."""

    def script(page: Any) -> None:
        page.add_init_script(WATCH)
        page.route(
            "**/raw/", lambda route: route.fulfill(content_type="text/html", body="".join(HOSTILE[3:7]))
        )
        page.goto("/raw/")
        page.wait_for_function("window.awaHits > 0")
        assert page.evaluate(TOUCH)[1] > 0

    in_browser(script)
