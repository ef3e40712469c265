"""What the tests in a browser share: the browser, jobs to look at, a strict policy, POSTs without clicking.

The browser runs in a thread of its own: Playwright's synchronous interface leaves an event loop
running in its thread, where Django's ORM then refuses to work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from tests.factories import insert_job

Run: TypeAlias = Callable[[Callable[[Any], None]], None]
IN_BROWSER = [pytest.mark.system, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
UNDER_STRICT_POLICY = [*IN_BROWSER, pytest.mark.usefixtures("strict_policy")]

# As docs/security.md has it for Django 6.
SECURE_CSP = {
    "default-src": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
    "form-action": ["'self'"],
    "object-src": ["'none'"],
}
POLICY = "; ".join(f"{directive} {' '.join(sources)}" for directive, sources in SECURE_CSP.items())

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 90_000  # milliseconds: the machine may be loaded
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/shop/tasks.py", line 41, in send_receipt
    mailer.send(to, render(order))
  File "/srv/shop/shop/mail.py", line 17, in send
    raise ConnectionRefusedError(111, "Connection refused")
ConnectionRefusedError: [Errno 111] Connection refused
"""

# page.evaluate(POST, [url, {"name": "value"}]) on a page that has a form.
POST = """
([url, data]) => {
    const form = Object.assign(document.createElement("form"), {method: "post", action: url});
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    for (const [name, value] of Object.entries({...data, csrfmiddlewaretoken: token})) {
        form.append(Object.assign(document.createElement("input"), {type: "hidden", name, value}));
    }
    document.body.append(form);
    form.submit();
}
"""


def strict_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware for Django 5.2, which has none of its own: nothing inline, nothing from elsewhere."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond


def fill() -> int:
    """A queue with a bit of everything; the id of a failed job."""
    kinds = ("shop.send_receipt", "shop.charge_card", "shop.remind_customer", "shop.rebuild_index")
    with connection.cursor() as cursor:
        for kind in kinds:
            cursor.execute("INSERT INTO awa.job_kinds (kind, queue) VALUES (%s, 'mail')", [kind])
        cursor.execute(
            """
            INSERT INTO awa.jobs_hot (kind, queue, args, run_at, created_at, state, finalized_at, attempt)
            SELECT
                (%s::text[])[1 + n %% 4],
                (ARRAY['mail', 'default', 'billing'])[1 + n %% 3],
                jsonb_build_object('order_id', n),
                now() - n * interval '41 seconds',
                now() - n * interval '43 seconds',
                (CASE WHEN n %% 7 = 0 THEN 'available' ELSE 'completed' END)::awa.job_state,
                CASE WHEN n %% 7 <> 0 THEN now() - n * interval '40 seconds' END,
                CASE WHEN n %% 7 = 0 THEN 0 ELSE 1 END
            FROM generate_series(1, 40) AS n
            """,
            [list(kinds)],
        )
        cursor.execute(
            """
            INSERT INTO awa.scheduled_jobs (kind, queue, args, run_at, state, attempt)
            SELECT
                (%s::text[])[1 + n %% 4],
                (ARRAY['mail', 'default', 'billing'])[1 + n %% 3],
                jsonb_build_object('customer', n),
                now() + n * interval '37 minutes',
                (CASE WHEN n %% 6 = 0 THEN 'retryable' ELSE 'scheduled' END)::awa.job_state,
                CASE WHEN n %% 6 = 0 THEN 2 ELSE 0 END
            FROM generate_series(1, 60) AS n
            """,
            [list(kinds)],
        )
        cursor.execute(
            """
            INSERT INTO awa.runtime_instances (
                name, supervisor, hostname, pid, version, queues, concurrency, running_count
            )
            VALUES ('web-1-4711', NULL, 'web-1', 4711, '0.1.0', '{}', 0, 0),
                ('web-1-4711-1', 'web-1-4711', 'web-1', 4720, '0.1.0', '{mail,default,billing}', 10, 2)
            """
        )
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, timezone, kind, queue, last_enqueued_at) "
            "VALUES ('nightly-index', '15 3 * * *', 'Europe/Madrid', 'shop.rebuild_index', 'default', now())"
        )
        cursor.execute(
            "INSERT INTO awa.queue_meta (queue, paused, paused_at, paused_by) "
            "VALUES ('billing', true, now() - interval '12 minutes', 'ann')"
        )
    for kind in kinds[:2]:
        insert_job("running", kind=kind, queue="mail", worker="web-1-4711-1", progress={"percent": 40})
    insert_job("cancelled", kind=kinds[2], queue="mail")
    errors = [
        {
            "error": "[Errno 111] Connection refused",
            "class": "ConnectionRefusedError",
            "outcome": outcome,
            "attempt": attempt,
            "run_lease": attempt,
            "at": (timezone.now() - timedelta(minutes=70 // attempt**2)).isoformat(),
            "worker": "web-1-4711-1",
            "traceback": TRACEBACK,
        }
        for attempt, outcome in ((1, "retried"), (2, "retried"), (3, "failed"))
    ]
    return insert_job(
        "failed",
        kind=kinds[0],
        queue="mail",
        args={"order_id": 2**70, "to": "ann@example.org", "api_key": "k-123", "lines": [1, 2.5, None, True]},
        attempt=3,
        max_attempts=3,
        run_lease=3,
        errors=errors,
        tags=["receipt", "eu"],
        metadata={"trace": "00-4bf92f"},
        worker="web-1-4711-1",
        unique_key=bytes(range(16)),
        unique_states="11101001",
    )


@pytest.fixture
def in_browser(live_server: LiveServer, clean_queue: None) -> Run:
    """``in_browser(script)`` runs ``script(page)`` in Chromium, logged in as a superuser."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    session = client.cookies["sessionid"].value

    def body(script: Callable[[Any], None]) -> None:
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
            try:
                context = browser.new_context(
                    base_url=live_server.url, viewport={"width": 1440, "height": 900}
                )
                context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
                page = context.new_page()
                page.set_default_timeout(PATIENCE)
                problems: list[str] = []
                page.on("pageerror", lambda error: problems.append(str(error)))
                page.on("dialog", lambda dialog: problems.append(dialog.message))
                script(page)
                assert problems == []
            finally:
                browser.close()

    def run(script: Callable[[Any], None]) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(body, script).result()

    return run
