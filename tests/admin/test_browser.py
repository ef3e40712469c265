"""The pages in headless Chromium: they work with scripts and styles on.

The browser runs in a thread of its own: Playwright's synchronous interface leaves an event loop
running in its thread, where Django's ORM then refuses to work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from awa_django.models import HotJob, Job
from tests.factories import insert_job

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

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
def in_browser(live_server: LiveServer, clean_queue: None) -> Callable[[Callable[[Any], None]], None]:
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


def test_pages_and_a_retry(in_browser: Callable[[Callable[[Any], None]], None]) -> None:
    job_id = fill()

    def script(page: Any) -> None:
        page.goto("/admin/awa/hotjob/")
        assert page.locator("#result_list tbody tr").count() == 44
        page.goto("/admin/awa/deferredjob/")
        assert page.locator("#result_list tbody tr").count() == 60
        for name, row in (
            ("queuemeta", "billing"), ("runtimeinstance", "web-1-4711-1"), ("cronjob", "nightly-index"),
            ("leaderlease", "promote"),
        ):  # fmt: skip
            page.goto(f"/admin/awa/{name}/")
            assert page.locator("table tbody").get_by_text(row, exact=True).count() == 1
        page.goto(f"/admin/awa/hotjob/{job_id}/change/")
        content = page.content()
        assert str(2**70) in content
        assert "k-123" not in content

        page.goto("/admin/awa/hotjob/?state=failed")
        page.locator(f'input[name="_selected_action"][value="{job_id}"]').check()
        page.locator('select[name="action"]').select_option("retry_jobs")
        page.locator('button[name="index"]').click()
        page.get_by_text("Retry: 1 changed.").wait_for()

        page.goto(f"/admin/awa/hotjob/{job_id}/change/")
        page.get_by_role("button", name="Reschedule").click()
        page.locator("#id_run_at_0").fill("2030-05-01")
        page.locator("#id_run_at_1").fill("09:30")
        page.locator('input[type="submit"][value="Reschedule"]').click()
        page.wait_for_url(f"**/admin/awa/deferredjob/{job_id}/change/")  # it has moved, and so has the page
        page.get_by_text("Reschedule: 1 changed.").wait_for()

        page.goto("/admin/awa/queuemeta/")
        page.get_by_role("button", name="Resume").click()
        page.get_by_text("Queue billing is resumed.").wait_for()

    in_browser(script)
    assert Job.objects.get(pk=job_id).state == "scheduled"
    assert not HotJob.objects.filter(pk=job_id).exists()
