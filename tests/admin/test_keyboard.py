"""The pages without a mouse: the focus is seen, nothing traps it, and nothing that comes takes it away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from awa_django.admin.dashboard import page as dashboard_page
from awa_django.admin.dashboard import shared
from awa_django.models import Job
from tests.admin.browser import UNDER_STRICT_POLICY, Run, fill
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = UNDER_STRICT_POLICY


# Where the focus is, once per element: what a reader hears of it, and how it is seen.
STOP = """
() => {
    const focused = document.activeElement;
    if (focused === document.body || focused.dataset.stopped) return null;
    focused.dataset.stopped = "1";
    const style = getComputedStyle(focused);
    const width = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
    const reach = width + parseFloat(style.outlineOffset);
    const box = focused.getBoundingClientRect();
    const clips = (each) => getComputedStyle(each).overflowX !== "visible";
    let cut = "";
    for (let each = focused.parentElement; each && each !== document.body; each = each.parentElement) {
        const left = each.getBoundingClientRect().left + each.clientLeft;
        const right = left + each.clientWidth;
        if (clips(each) && (box.left - reach < left - 0.5 || box.right + reach > right + 0.5)) {
            cut = each.className || each.localName;
        }
    }
    return {
        name: (focused.getAttribute("aria-label") || focused.innerText || focused.value || "").trim(),
        element: focused.localName,
        place: ["nav-sidebar", "changelist-filter"].find((id) => focused.closest(`#${id}`)) ?? "",
        isOurs: Boolean(focused.closest(".awa-page, .awa-dashboard")),
        isShown: width > 0 && box.width > 0 && box.bottom > 0 && box.top < innerHeight,
        cut,
    };
}
"""


def walk(page: Any, most: int = 300) -> list[dict[str, Any]]:
    """Tab from the beginning of the page until the focus leaves it, or comes back."""
    stops: list[dict[str, Any]] = []
    while (stop := press(page, "Tab")) is not None:
        stops.append(stop)
        assert len(stops) < most, "no end"
    return stops


def press(page: Any, key: str) -> dict[str, Any] | None:
    page.keyboard.press(key)
    stop: dict[str, Any] | None = page.evaluate(STOP)
    return stop


# What the focused element is called.
NAME = """
() => {
    const focused = document.activeElement;
    return (focused.getAttribute("aria-label") || focused.innerText || focused.value || "").trim();
}
"""


def go(page: Any, name: str, key: str = "Tab") -> None:
    """To what is called so, or begins so, as somebody does who hears the names one by one."""
    heard: list[str] = []
    while not heard or not heard[-1].startswith(name):
        assert len(heard) < 100, (name, heard)
        page.keyboard.press(key)
        heard.append(page.evaluate(NAME))


@pytest.fixture
def fresh_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    for module in (shared, dashboard_page):
        monkeypatch.setattr(module, "FRESH_FOR", timedelta(seconds=1))


def test_each_stop_of_each_page_is_seen_and_the_way_ends(in_browser: Run) -> None:
    failed = fill()
    jobs = reverse("admin:awa_hotjob_changelist")
    pages = {
        reverse("admin:awa_dashboard_changelist"): ["Pause refreshing", "Queues", "Workers", "Tables"],
        f"{jobs}?state=failed": ["failed", "Search", "Run", "Rows", str(failed)],
        reverse("admin:awa_hotjob_change", args=[failed]): ["Retry", "Delete", "Edit arguments", "Arguments"],
        reverse("admin:awa_queuemeta_changelist"): [
            "Resume billing",
            "Pause default",
            "until an instant mail",
        ],
    }

    def script(page: Any) -> None:
        for url, wanted in pages.items():
            page.goto(url)
            stops = walk(page)
            assert stops[0]["name"] == "Skip to main content"
            assert [stop for stop in stops if stop["isOurs"] and not stop["isShown"]] == [], url
            assert [stop for stop in stops if stop["isOurs"] and stop["cut"]] == [], url
            assert [stop for stop in stops if stop["isOurs"] and not stop["name"]] == [], url
            names = [" ".join(stop["name"].split()) for stop in stops if stop["place"] != "nav-sidebar"]
            assert [name for name in names if name in wanted] == wanted, (url, names)

            page.goto(url)
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")  # past the header and the bar at the side
            stop = press(page, "Tab")
            assert stop is not None
            assert stop["isOurs"] or stop["place"] == "changelist-filter"

    in_browser(script)


def test_jobs_are_filtered_ticked_and_rescheduled_by_keys(in_browser: Run) -> None:
    fill()

    def script(page: Any) -> None:
        page.goto(reverse("admin:awa_hotjob_changelist"))
        go(page, "Skip to main content")
        page.keyboard.press("Enter")
        go(page, "available")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        go(page, "Skip to main content")
        page.keyboard.press("Enter")
        go(page, "Run", "Shift+Tab" if page.evaluate(NAME) == "Rows" else "Tab")
        page.keyboard.press("Shift+Tab")
        page.keyboard.type("Resch")
        go(page, "Select all objects on this page for an action")
        page.keyboard.press("Space")
        go(page, "Run", "Shift+Tab")
        with page.expect_navigation():
            page.keyboard.press("Enter")

        go(page, "Date")
        page.keyboard.type("2030-05-01")
        go(page, "Today")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".calendarbox").first.wait_for()
        page.keyboard.press("Escape")
        page.locator(".calendarbox").first.wait_for(state="hidden")
        assert page.locator("fieldset fieldset legend").inner_text() == "Run at:"
        go(page, "Time")
        page.keyboard.type("09:30")
        go(page, "Reschedule")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        page.get_by_text("Reschedule: 5 changed.").wait_for()

    in_browser(script)
    assert Job.objects.filter(run_at__year=2030, state="scheduled").count() == 5


@pytest.mark.usefixtures("fresh_each_second")
def test_a_refresh_of_the_dashboard_leaves_focus_and_place_and_says_what_is_new(
    in_browser: Run, connect: Connect
) -> None:
    fill()
    connection = connect()

    def script(page: Any) -> None:
        page.goto(reverse("admin:awa_dashboard_changelist"))
        link = page.locator("[data-panel=queues] a[href*='state=failed'][href*='queue=mail']")
        link.focus()
        page.evaluate("scrollTo(0, 120)")
        said = page.locator("#awa-said")
        add = "INSERT INTO awa.jobs (kind, queue) SELECT 'a', 'before-mail' FROM generate_series(1, %s)"
        connection.execute(add, [2])
        page.locator("[data-panel=queues]").get_by_text("before-mail").wait_for()
        assert page.evaluate(NAME) == "1"
        assert link.evaluate("link => link === document.activeElement") is True
        assert page.evaluate("scrollY") == 120
        page.wait_for_function("document.getElementById('awa-said').textContent")
        assert "before-mail" in said.inner_text()
        assert "billing" not in said.inner_text()  # of which nobody needs to hear again
        page.evaluate("document.getElementById('awa-said').textContent = ''")
        connection.execute(add, [9])
        page.locator("[data-panel=queues] tr", has_text="before-mail").get_by_text("11").wait_for()
        assert said.inner_text() == ""  # the same with another number

    in_browser(script)


def test_a_refresh_of_a_job_leaves_focus_selection_and_buttons(in_browser: Run, connect: Connect) -> None:
    entries = [{"error": f"no {n}", "traceback": f"trace of {n}", "attempt": n} for n in (1, 2)]
    job_id = insert_job("running", kind="shop.pay", attempt=3, errors=entries)
    connection = connect()

    def script(page: Any) -> None:
        page.goto(reverse("admin:awa_hotjob_change", args=[job_id]))
        summary = page.locator("details").last.locator("summary")
        summary.focus()
        page.keyboard.press("Enter")
        page.get_by_text("trace of 1").wait_for()
        connection.execute('UPDATE awa.jobs_hot SET errors = errors || \'{"error": "third"}\'::jsonb')
        page.get_by_text("third").wait_for()
        assert summary.evaluate("each => each === document.activeElement") is True
        assert page.get_by_text("trace of 1").is_visible()

        page.evaluate("getSelection().selectAllChildren(document.querySelector('[data-live=timeline] h2'))")
        page.get_by_role("button", name="Cancel").focus()
        connection.execute(
            "UPDATE awa.jobs_hot SET state = 'failed', finalized_at = now(), heartbeat_at = NULL"
        )
        page.locator("h1 .awa-state-failed").wait_for()
        assert page.locator("[data-said]").inner_text() == f"Job {job_id} failed"
        assert page.evaluate(NAME) == "Cancel"  # and none that would now do something else
        assert page.locator(".awa-event-title").get_by_text("Failed").count() == 0
        page.evaluate("getSelection().removeAllRanges()")
        page.locator(".awa-event-title").get_by_text("Failed").wait_for()
        page.locator("[data-live=actions] a").last.focus()
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Retry").wait_for()

    in_browser(script)
