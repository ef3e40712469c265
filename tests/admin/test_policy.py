"""Every page in headless Chromium under a strict policy, light and dark, wide and narrow, read by axe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.urls import reverse

from awa_django.admin.job_actions import JOB_ACTIONS
from tests.admin.browser import POLICY, POST, UNDER_STRICT_POLICY, Run, fill
from tests.admin.hostile import details, lists
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = UNDER_STRICT_POLICY


WATCH = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.refused.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
VARIANTS = [(scheme, width) for width in (1440, 390) for scheme in ("light", "dark")]
# Colours on their way are no colours to judge, and of rows that are alike some tell of all.
REST = """
() => {
    document.querySelectorAll("tbody tr:nth-child(n + 16)").forEach((row) => row.remove());
    const rest = new CSSStyleSheet();
    rest.replaceSync("*, ::before, ::after { transition: none !important; animation: none !important; }");
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, rest];
    document.querySelectorAll("details").forEach((details) => { details.open = true; });
}
"""
# page.evaluate(AUDIT, "selector") looks at these elements alone.
AUDIT = """
async (ours) => {
    await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
    const found = await axe.run(ours ? {include: [...document.querySelectorAll(ours)]} : document, {
        resultTypes: ["violations"],
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    });
    return found.violations.map((rule) => `${rule.id}: ${rule.help}\\n` + rule.nodes.slice(0, 3).map((node) =>
        `    ${node.html.slice(0, 200)}\\n    ${node.failureSummary.replaceAll("\\n", " ")}`
    ).join("\\n"));
}
"""


def axe_source() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


class Auditor:
    """Looks at pages, and keeps what is wrong with them."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.axe = axe_source()
        page.add_init_script(WATCH)

    def look(self, name: str) -> None:
        """At the page that is open: light and dark, on a desk and on a telephone."""
        self.page.evaluate(REST)
        self.page.evaluate(self.axe)
        for scheme, width in VARIANTS:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.page.set_viewport_size({"width": width, "height": 900})
            where = f"{name} ({scheme}, {width})"
            self.problems += [f"{where}: {problem}" for problem in self.page.evaluate(AUDIT)]
        wider = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wider > 0:
            self.problems.append(f"{name}: {wider} pixels wider than a telephone")
        self.problems += [f"{name}: {refused}" for refused in self.page.evaluate("window.refused")]

    def post(self, url: str, data: dict[str, str]) -> None:
        with self.page.expect_navigation():
            self.page.evaluate(POST, [url, data])


@contextmanager
def auditor(page: Any) -> Iterator[Auditor]:
    assert page.goto("/admin/").headers["content-security-policy"] == POLICY
    found = Auditor(page)
    yield found
    assert not found.problems, "\n".join(found.problems)


def test_pages_keep_to_a_strict_policy_and_shut_nobody_out(in_browser: Run) -> None:
    failed = fill()
    running = insert_job("running", kind="shop.charge_card", queue="mail", progress={"percent": 40})
    deferred = insert_job("scheduled", kind="shop.charge_card", queue="billing")
    jobs = reverse("admin:awa_hotjob_changelist")
    ours = [url for url in lists() if url.count("/") > 3]  # without Django's own indexes
    urls = [*ours, f"{jobs}?queue=mail&q=shop", f"{jobs}?q=nothing", *details("hotjob", failed)]
    urls += [*details("hotjob", running), *details("deferredjob", deferred)]

    def script(page: Any) -> None:
        with auditor(page) as audit:
            for url in urls:
                response = page.goto(url)
                if response.headers["content-type"].startswith("text/html") and "/live/" not in url:
                    audit.look(url)

    in_browser(script)


def test_questions_and_answers_keep_to_it_too(in_browser: Run, settings: Any, connect: Connect) -> None:
    """Of every action that there is, on what is ticked and on all that match; and the pages that say no."""
    fill()
    job_id = insert_job(kind="shop.charge_card", queue="mail")
    url = reverse("admin:awa_job_changelist")
    one = {ACTION_CHECKBOX_NAME: str(job_id), "index": "0"}

    def script(page: Any) -> None:
        with auditor(page) as audit:
            page.goto(url)
            for name, action in JOB_ACTIONS.items():
                if action.asks:
                    audit.post(url, {"action": name, **one})
                    audit.look(name)
                if action.form is not None:
                    audit.post(url, {"action": name, "confirmed": "1", **one})  # without what it asks for
                    audit.look(f"{name}, answered")
                audit.post(f"{url}?queue=mail", {"action": name, "select_across": "1", **one})
                audit.look(f"{name} of all that match")
            audit.post(url, {"action": "retry_jobs", **one})  # which is left alone, and said to be
            audit.look("retry_jobs, refused")
            settings.AWA = {**settings.AWA, "ADMIN_STATEMENT_TIMEOUT": 0.2}
            locker = connect(autocommit=False)
            locker.execute("LOCK TABLE awa.jobs_hot")
            assert page.goto(f"{url}?queue=mail&q=tag:x").status == 503
            audit.look("too slow")
            locker.rollback()

    in_browser(script)


def test_pages_go_from_right_to_left(in_browser: Run, settings: Any) -> None:
    settings.LANGUAGE_CODE = "he"
    failed = fill()
    urls = [url for url in lists() if url.count("/") > 3] + details("hotjob", failed)

    def script(page: Any) -> None:
        for url in urls:
            response = page.goto(url)
            if not response.headers["content-type"].startswith("text/html") or "/live/" in url:
                continue
            assert page.evaluate("document.documentElement.dir") == "rtl", url
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wider <= 0, (url, width, wider)
        page.goto(reverse("admin:awa_hotjob_change", args=[failed]))
        page.set_viewport_size({"width": 1440, "height": 900})
        key, value = (page.locator(f".awa-card {each}").first.bounding_box()["x"] for each in ("dt", "dd"))
        assert key > value
        assert page.evaluate("getComputedStyle(document.querySelector('pre.awa-code')).direction") == "ltr"

    in_browser(script)
