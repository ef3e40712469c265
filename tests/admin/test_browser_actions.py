"""An operator's main paths in headless Chromium, with a worker beside: mend and retry, pause, cancel many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from awa_django.models import HotJob
from awa_django.operations.change import BULK_KIND
from tests import handlers
from tests.admin.browser import IN_BROWSER, Run
from tests.conftest import Connect
from tests.factories import insert_job, reload_job
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

pytestmark = IN_BROWSER

KIND = handlers.nothing.handler.kind


@pytest.fixture
def worker(clean_queue: None, connect: Connect, worker_env: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """A worker of the queues default and mail; its log is shown when the test fails."""
    process = WorkerProcess(worker_env, tmp_path / "worker.log", "--queues", "default,mail")
    try:
        process.wait_ready(connect())
        yield
    finally:
        process.end()
        print(process.text())


def follow_until(page: Any, text: str) -> None:
    """Load the page again until its state is this one (its own script may be quicker)."""
    state = page.locator("h1 [data-live=state]", has_text=text)
    wait_until(lambda: page.reload() and state.count(), timeout=90, interval=0.2)


def test_a_failed_job_is_mended_retried_and_seen_to_complete(in_browser: Run, worker: None) -> None:
    error = {"error": "'number' does not fit", "class": "InvalidJob", "outcome": "failed", "attempt": 1}
    args = {"number": "seven"}
    job_id = insert_job("failed", kind=KIND, args=args, attempt=1, errors=[error])

    def script(page: Any) -> None:
        page.goto(f"/admin/awa/hotjob/{job_id}/change/")
        page.get_by_text("does not fit").first.wait_for()
        page.get_by_role("link", name="Edit arguments").click()
        page.locator("#id_args").fill('{"number": "eight"}')
        page.get_by_role("button", name="Save arguments").click()
        page.get_by_text("does not fit its annotation").wait_for()
        page.locator("#id_args").fill('{"number": 9007199254740993}')
        page.get_by_role("button", name="Save arguments").click()
        page.get_by_text(f"The arguments of job {job_id} were changed.").wait_for()
        page.get_by_text("9007199254740993").first.wait_for()
        page.get_by_role("button", name="Retry").click()
        page.get_by_text("Retry: 1 changed.").wait_for()
        follow_until(page, "completed")

    in_browser(script)
    assert reload_job(job_id).args == {"number": 9007199254740993}
    messages = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    assert messages == ['Edit arguments: number "seven" to 9007199254740993.', "Retry: changed."]


def test_a_queue_is_paused_and_resumed(in_browser: Run, worker: None) -> None:
    waiting = insert_job("scheduled", kind=KIND, queue="mail")

    def script(page: Any) -> None:
        page.goto("/admin/awa/queuemeta/")
        row = page.locator("tr", has=page.get_by_role("rowheader", name="mail", exact=True))
        row.get_by_label("How long to pause mail").select_option("1 hour")
        row.get_by_role("button", name="Pause").click()
        page.get_by_text("Queue mail is paused until").wait_for()
        row.get_by_text("in 59 min").wait_for()

        page.goto(f"/admin/awa/job/{waiting}/change/")
        page.get_by_role("button", name="Run now").click()
        page.get_by_text("Run now: 1 changed.").wait_for()
        assert "paused" in page.locator(".awa-why").inner_text()
        assert "available" in page.locator("h1 [data-live=state]").inner_text()

        page.goto("/admin/awa/queuemeta/")
        row.get_by_role("button", name="Resume").click()
        page.get_by_text("Queue mail is resumed.").wait_for()
        page.goto(f"/admin/awa/job/{waiting}/change/")
        follow_until(page, "completed")

    in_browser(script)


@pytest.mark.slow
def test_two_hundred_thousand_jobs_are_cancelled_by_filter(in_browser: Run, worker: None) -> None:
    count = 100_000
    with connection.cursor() as cursor:
        for table, at in (("jobs_hot", "now()"), ("scheduled_jobs", "now() + interval '1 day'")):
            state = "available" if table == "jobs_hot" else "scheduled"
            cursor.execute(
                f"INSERT INTO awa.{table} (kind, queue, state, run_at) "
                f"SELECT 'tests.many', 'nobody', '{state}', {at} FROM generate_series(1, %s)",
                [count],
            )
        cursor.execute("INSERT INTO awa.job_kinds (kind) VALUES ('tests.many')")
    other = insert_job("scheduled", queue="nobody")
    shares: list[float] = []

    def script(page: Any) -> None:
        page.goto("/admin/awa/job/?kind=tests.many")
        page.locator("#action-toggle").check()
        page.get_by_role("button", name="Select all that match").click()
        page.get_by_text("All that match are selected").wait_for()
        page.locator('select[name="action"]').select_option("cancel_jobs")
        page.locator('button[name="index"]').click()
        page.get_by_text("over 10,000").wait_for()
        assert page.get_by_text("No worker serves").count() == 0
        page.get_by_role("button", name="Cancel: all that match").click()
        page.get_by_text("does it.").wait_for()

        def share() -> Any:
            """What the page says by itself: its script follows the job."""
            bar = page.locator(".awa-progress progress")
            if bar.count():
                shares.append(float(bar.first.get_attribute("value") or 0))
            return page.locator("h1 [data-live=state]", has_text="completed").count()

        wait_until(share, timeout=300, interval=0.1)
        assert '"changed": 200000' in page.content().replace("&quot;", '"')

    in_browser(script)
    assert [share for share in shares if 0 < share < 100]
    assert shares == sorted(shares)
    assert HotJob.objects.filter(kind="tests.many", state="cancelled").count() == 2 * count
    assert reload_job(other).state == "scheduled"
    [job] = HotJob.objects.filter(kind=BULK_KIND)
    entries = LogEntry.objects.filter(object_id=str(job.pk)).order_by("pk")
    assert [entry.change_message for entry in entries] == [
        "Cancel, all that match (all jobs: kind tests.many): started.",
        "Ended, cancel: 200,000 changed, 0 left.",
    ]
