"""The pages inside themes of the admin that bring templates and style sheets of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer

from awa_django.models import Job
from tests.admin.browser import IN_BROWSER, Run, fill
from tests.admin.hostile import details, lists
from tests.admin.test_policy import AUDIT, REST, VARIANTS, axe_source
from tests.conftest import PROJECT_DIR
from tests.factories import insert_job
from tests.waiting import wait_until

pytestmark = IN_BROWSER

THEMES = ("unfold", "jazzmin")
# What is ours on a page: the rest is the theme's, and so are the lists, which are made of its templates.
OURS = ".awa-page, .awa-dashboard"


@pytest.fixture(params=THEMES)
def themed(request: pytest.FixtureRequest, worker_env: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a server of the example project with this theme, on the test's database."""
    if find_spec(request.param) is None:
        pytest.skip(f"django-{request.param} is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**worker_env, "DJANGO_SETTINGS_MODULE": "tests.themed_settings", "AWA_THEME": request.param}
    command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT_DIR, env=env, stdout=log, stderr=log)
        try:
            wait_until(lambda: process.poll() is not None or _answers(port), timeout=250)
            assert process.poll() is None, (tmp_path / "server.log").read_text()
            yield f"http://localhost:{port}"  # for which the cookie is
        finally:
            process.terminate()
            process.wait(60)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_pages_and_an_action_in_a_theme(in_browser: Run, themed: str, live_server: LiveServer) -> None:
    failed = fill()
    deferred = insert_job("scheduled", kind="shop.charge_card", queue="billing")
    urls = [*lists(), *details("hotjob", failed), *details("deferredjob", deferred)]
    jobs = reverse("admin:awa_hotjob_changelist")
    problems: list[str] = []
    looked_at: list[str] = []

    def script(page: Any) -> None:
        page.route("**/*", lambda route: _only_from_here(route, themed))
        for url in urls:
            response = page.goto(themed + url)
            assert (response.status, page.url) == (200, themed + url)  # and not that of the login
            if not response.headers["content-type"].startswith("text/html") or "/live/" in url:
                continue
            if page.locator(OURS).count():
                problems.extend(f"{url}: {problem}" for problem in audit(page))
                looked_at.append(url)
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(f"{themed}{jobs}?state=failed")
        page.locator("#result_list .awa-state-failed").first.wait_for()
        page.goto(f"{themed}{reverse('admin:awa_hotjob_change', args=[failed])}")
        page.get_by_role("button", name="Retry").click()
        page.get_by_text("Retry: 1 changed.").wait_for()

    in_browser(script)
    assert problems == []
    assert len(looked_at) >= 6
    assert Job.objects.get(pk=failed).state == "available"


def _only_from_here(route: Any, server: str) -> None:
    """Fonts and the like from elsewhere are left out: a test asks nobody outside."""
    if route.request.url.startswith((server, "data:")):
        route.continue_()
    else:
        route.abort()


def audit(page: Any) -> list[str]:
    """What axe finds in our part of the page, light and dark, on a desk and on a telephone."""
    page.evaluate(REST)
    page.evaluate(axe_source())
    found: list[str] = []
    for scheme, width in VARIANTS:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 900})
        found += page.evaluate(AUDIT, OURS)
    return found
