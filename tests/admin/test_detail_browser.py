"""The page of a job in headless Chromium, under a strict Content-Security-Policy: it follows the job."""

from __future__ import annotations

import json
from typing import Any

from awa_django import operations
from awa_django.models import Job
from awa_django.storage import finalize, heartbeat, queues
from awa_django.storage.claim import ClaimRequest, claim_one
from awa_django.storage.rows import Attempt, Ending
from awa_django.worker import verdict
from tests.admin.browser import UNDER_STRICT_POLICY, Run
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = UNDER_STRICT_POLICY

REQUEST = ClaimRequest(limits={}, total=1, worker="web-1-4711-1")


def refuse(card: str) -> None:
    raise ConnectionRefusedError(f"the bank refused {card}")


def test_a_job_is_watched_from_a_paused_queue_to_its_failure(in_browser: Run, connect: Connect) -> None:
    card = "4000-1234-1234-1234"
    job_id = insert_job(
        kind="shop.charge_card", queue="billing", max_attempts=1, args={"order_id": 2**70, "card": card},
        metadata={"awa:secret": ["card"]},
    )  # fmt: skip
    operations.pause_queue("billing", by="ann")
    connection = connect()

    def script(page: Any) -> None:
        page.goto(f"/admin/awa/hotjob/{job_id}/change/")
        page.get_by_text("Its queue billing is paused by ann").wait_for()
        assert page.get_by_label("Follow this job").is_checked()
        assert str(2**70) in page.content()
        page.evaluate("window.stayed = true")

        queues.resume_queue(connection, "billing")
        page.get_by_text("No worker runs at all").wait_for()
        claimed = claim_one(connection, job_id, REQUEST)
        assert claimed is not None
        run = Attempt(job_id, claimed.run_lease)
        page.get_by_text("Attempt 1 of 1: runs").wait_for()
        page.get_by_text("What is it doing?").wait_for()
        assert page.get_by_role("button", name="Reschedule").count() == 0  # no more
        for percent in (40, 80):
            report = {"percent": percent, "message": f"step {percent // 10} of 10"}
            heartbeat.progress(connection, {run: json.dumps(report)})
            page.get_by_text(f"step {percent // 10} of 10").wait_for()
            assert page.get_by_role("progressbar").evaluate("bar => bar.value") == percent

        try:
            refuse(card)
        except ConnectionRefusedError as exc:
            ending = verdict.raised(claimed, exc, worker="web-1-4711-1")
        assert isinstance(ending, Ending)
        finalize.finish(connection, [ending])
        page.get_by_text("Attempt 1: failed").wait_for()
        page.locator(".awa-message").get_by_text("the bank refused ********").wait_for()
        page.get_by_role("button", name="Retry").wait_for()
        page.locator(".awa-follow").wait_for(state="hidden")  # nothing is to come
        assert page.locator("h1 .awa-state-failed").count() == 1
        assert "Traceback (most recent call last)" in page.locator("details[open] pre").inner_text()
        assert card not in page.content()
        assert page.evaluate("window.stayed") is True
        page.get_by_role("button", name="Retry").click()  # with the token that came by itself
        page.get_by_text("Retry: 1 changed.").wait_for()
        page.get_by_text("Attempt 1 of 1: waits for a worker").wait_for()

    in_browser(script)
    assert Job.objects.get(pk=job_id).state == "available"


def test_no_button_becomes_another_one_under_the_pointer(in_browser: Run, connect: Connect) -> None:
    job_id = insert_job("running", max_attempts=1)
    connection = connect()

    def script(page: Any) -> None:
        page.goto(f"/admin/awa/hotjob/{job_id}/change/")
        page.get_by_role("button", name="Cancel").hover()
        connection.execute(
            "UPDATE awa.jobs_hot SET state = 'failed', finalized_at = now(), heartbeat_at = NULL"
            " WHERE id = %s",
            [job_id],
        )
        page.locator("h1 .awa-state-failed").wait_for()
        assert page.get_by_role("button", name="Retry").count() == 0
        page.mouse.move(0, 0)
        page.get_by_role("button", name="Retry").wait_for()
        assert page.get_by_role("button", name="Cancel").count() == 0

    in_browser(script)


def test_what_is_opened_stays_open_and_a_hidden_page_asks_nothing(in_browser: Run, connect: Connect) -> None:
    entries = [{"error": f"no {n}", "traceback": f"trace of {n}", "attempt": n} for n in (1, 2)]
    job_id = insert_job("running", attempt=3, errors=entries)
    connection = connect()

    def show(page: Any, *, hidden: bool) -> None:
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            hidden,
        )

    def script(page: Any) -> None:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)
        page.clock.install(time=0)
        page.clock.pause_at(1_000)  # it goes on when it is told to, however slow this machine is
        page.goto(f"/admin/awa/job/{job_id}/change/")
        first, newest = page.locator("details").last, page.locator("details").first
        newest.locator("summary").click()
        first.locator("summary").click()
        connection.execute('UPDATE awa.jobs_hot SET errors = errors || \'{"error": "third"}\'::jsonb')
        page.clock.fast_forward(2_000)
        page.get_by_text("third").wait_for()
        assert first.evaluate("each => each.open") is True
        assert newest.evaluate("each => each.open") is False

        show(page, hidden=True)
        page.clock.fast_forward(600_000)
        count = len(asked)
        connection.execute('UPDATE awa.jobs_hot SET progress = \'{"message": "fourth"}\'')
        show(page, hidden=False)
        page.get_by_text("fourth").wait_for()
        assert len(asked) == count + 1
        assert count == 1

        page.get_by_label("Follow this job").uncheck()
        page.clock.fast_forward(600_000)
        connection.execute("DELETE FROM awa.jobs_hot")
        assert len(asked) == count + 1
        page.get_by_label("Follow this job").check()
        page.locator(".awa-follow").get_by_text("This job is gone").wait_for()

    in_browser(script)
