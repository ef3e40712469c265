"""The pages in headless Chromium: they work with scripts and styles on."""

from __future__ import annotations

from typing import Any

from awa_django.models import HotJob, Job
from tests.admin.browser import IN_BROWSER, Run, fill

pytestmark = IN_BROWSER


def test_pages_and_a_retry(in_browser: Run) -> None:
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
