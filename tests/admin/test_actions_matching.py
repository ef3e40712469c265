"""Actions on all that match: what the page says, what the job is told, and what is refused."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from awa_django import registry
from awa_django.admin import base
from awa_django.bulk_operation import bulk_operation
from awa_django.models import DeferredJob, HotJob, Job
from awa_django.operations import pause_queue
from awa_django.operations.change import BULK_KIND
from awa_django.storage.prune import RetentionRule, prune
from awa_django.testing.running import run_available
from awa_django.worker.pruner import KEPT
from tests.admin.conftest import Login
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def known() -> None:
    """Other tests forget all kinds."""
    registry.register(bulk_operation.handler)


def post(client: Client, model: Any, action: str, query: str, **data: str) -> Any:
    url = reverse(f"admin:awa_{model._meta.model_name}_changelist") + query
    return client.post(url, {"action": action, ACTION_CHECKBOX_NAME: "0", "select_across": "1", **data})


def signed(response: Any) -> str:
    found = re.search(r'name="selection" value="([^"]+)"', response.content.decode())
    assert found, "no page that asks"
    return found[1]


def confirm(client: Client, model: Any, action: str, query: str, **data: str) -> Any:
    selection = signed(post(client, model, action, query))
    return post(client, model, action, query, confirmed="1", selection=selection, **data)


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def bulk_jobs() -> list[Any]:
    return list(HotJob.objects.filter(kind=BULK_KIND).order_by("id"))


def test_all_that_match_are_cancelled_by_a_job_whose_page_comes_next(root: Client) -> None:
    ids = [insert_job(queue="mail"), insert_job("running", queue="mail")]
    others = [insert_job("scheduled", queue="mail"), insert_job(), insert_job("completed", queue="mail")]
    before = [reload_job(job_id) for job_id in others]
    asked = post(root, HotJob, "cancel_jobs", "?queue=mail", index="0").content.decode()
    for text in ("hot jobs: queue mail", "available, running", "No worker serves the queue default now"):
        assert text in asked
    assert reload_job(ids[0]).state == "available"

    response = confirm(root, HotJob, "cancel_jobs", "?queue=mail")
    [job] = bulk_jobs()
    assert response["Location"] == reverse("admin:awa_job_change", args=[job.pk])
    assert said(response) == [f"Job {job.pk} does it."]
    later = insert_job(queue="mail")
    run = run_available(job.pk)
    assert run is not None
    assert run.outcome == "completed"
    assert [reload_job(job_id).state for job_id in (*ids, later)] == ["cancelled", "cancelled", "available"]
    assert [reload_job(job_id) for job_id in others] == before
    assert reload_job(ids[1]).errors[-1]["by"] == "root"
    messages = LogEntry.objects.filter(object_id=str(job.pk)).order_by("pk")
    assert [entry.change_message for entry in messages] == [
        "Cancel, all that match (hot jobs: queue mail): started.",
        "Ended, cancel: 2 changed, 0 left.",
    ]
    assert {entry.user for entry in messages} == {User.objects.get(username="root")}
    page = root.get(response["Location"]).content.decode()
    assert "2 changed" in page


@pytest.mark.fault("F83", injected="the confirmation for all that match, sent twice")
def test_the_same_form_sent_twice_starts_one_job(root: Client) -> None:
    insert_job("failed", kind="k")
    selection = signed(post(root, Job, "retry_jobs", "?state=failed&kind=k"))
    data = {"confirmed": "1", "selection": selection}
    first, second = (post(root, Job, "retry_jobs", "?state=failed&kind=k", **data) for _ in range(2))
    [job] = bulk_jobs()
    assert first["Location"] == second["Location"]
    assert said(second)[-1] == f"Job {job.pk} was started for this already: nothing is done twice."
    assert LogEntry.objects.count() == 1
    confirm(root, Job, "retry_jobs", "?state=failed&kind=k")  # asked anew, it is another one
    assert len(bulk_jobs()) == 2


@pytest.mark.fault("F83", injected="the same, sent again when its job has ended, with a retention of 0")
def test_a_form_counts_once_where_completed_jobs_are_not_kept(root: Client, settings: Any) -> None:
    """The row of the job is what refuses it; and what tells how it went."""
    settings.AWA = {"RETENTION": {"completed": 0}}
    job_id = insert_job("failed", kind="k")
    data = {"confirmed": "1", "selection": signed(post(root, Job, "retry_jobs", "?state=failed&kind=k"))}
    post(root, Job, "retry_jobs", "?state=failed&kind=k", **data)
    [job] = bulk_jobs()
    assert run_available(job.pk)
    update_job(job.pk, finalized_at="now() - interval '50 minutes'")
    prune(connection, [RetentionRule("completed", None, 0.0)], cursor=None, batch=10, kept=KEPT)
    update_job(job_id, state="'failed'", finalized_at="now()")
    again = post(root, Job, "retry_jobs", "?state=failed&kind=k", **data)
    assert said(again)[-1] == f"Job {job.pk} was started for this already: nothing is done twice."
    assert [each.pk for each in bulk_jobs()] == [job.pk]
    assert reload_job(job.pk).result["changed"] == 1


def test_what_was_confirmed_counts_not_the_address_it_is_sent_to(root: Client) -> None:
    insert_job("failed", queue="mail"), insert_job("failed", queue="other")
    selection = signed(post(root, HotJob, "retry_jobs", "?queue=mail"))
    post(root, HotJob, "retry_jobs", "?queue=other", confirmed="1", selection=selection)
    [job] = bulk_jobs()
    assert job.args["selection"]["queue"] == "mail"


@pytest.mark.parametrize(
    "selection",
    ["", "forged", signing.dumps({"selection": {}}, salt="other")],
    ids=["none", "forged", "of another page"],
)
@pytest.mark.fault("F83", injected="a confirmation that was not signed here")
def test_a_selection_that_was_not_signed_here_is_asked_about_anew(selection: str, root: Client) -> None:
    insert_job("failed")
    response = post(root, HotJob, "retry_jobs", "?state=failed", confirmed="1", selection=selection)
    assert signed(response)
    assert "too old" in response.content.decode()
    assert bulk_jobs() == []


def test_a_confirmation_is_for_its_user_and_its_action_alone(root: Client, login: Login) -> None:
    insert_job("failed")
    data = {"confirmed": "1", "selection": signed(post(root, HotJob, "retry_jobs", "?state=failed"))}
    for client, action in ((root, "delete_jobs"), (login("view_hotjob", "retry_job"), "retry_jobs")):
        response = post(client, HotJob, action, "?state=failed", **data)
        assert "too old" in response.content.decode()
        assert bulk_jobs() == []
    post(root, HotJob, "retry_jobs", "?state=failed", **data)
    assert len(bulk_jobs()) == 1


def test_what_failed_after_the_page_was_opened_is_not_deleted(root: Client) -> None:
    seen, unseen = insert_job("failed", kind="k"), insert_job("running", kind="k")
    confirm(root, Job, "delete_jobs", "?kind=k&state=failed")
    update_job(unseen, state="'failed'", finalized_at="now() + interval '1 second'")
    [job] = bulk_jobs()
    assert run_available(job.pk)
    assert reload_job(seen) is None
    assert reload_job(unseen).state == "failed"
    assert reload_job(job.pk).result["changed"] == 1


def test_values_are_asked_for_and_checked(root: Client) -> None:
    insert_job("scheduled", kind="k")
    query = "?kind=k"
    wrong = confirm(root, DeferredJob, "reschedule_jobs", query, run_at_0="9999-12-30", run_at_1="10:00")
    assert "must be between 0001-02-01 and 9999-12-01" in wrong.content.decode()
    assert "less than or equal to 102" in (
        confirm(root, DeferredJob, "set_priority_of_jobs", query, priority="103").content.decode()
    )
    assert bulk_jobs() == []
    confirm(root, DeferredJob, "set_priority_of_jobs", query, priority="-5")
    [job] = bulk_jobs()
    assert (job.args["change"]["operation"], job.args["change"]["priority"]) == ("set_priority", -5)
    assert job.args["selection"]["table"] == "deferred"
    assert LogEntry.objects.get().change_message.startswith("Set priority, priority -5, all that match")


@pytest.mark.parametrize(
    ("action", "query", "text"),
    [
        ("cancel_jobs", "", "Choose a filter first"),
        ("cancel_jobs", "?q=17", "search for a kind or a tag"),
        ("cancel_jobs", "?q=arg:a=1", "search for a kind or a tag"),
        ("cancel_jobs", "?state=nonsense", "No job can match"),
        ("cancel_jobs", "?kind=a&q=b", "search for a kind or a tag"),
        ("cancel_jobs", "?state=completed", "Cancel takes no job that is completed."),
        ("retry_jobs", "?state=failed&ended=discarded", "No job can match"),
    ],
)
def test_what_cannot_be_expressed_is_refused(action: str, query: str, text: str, root: Client) -> None:
    insert_job("failed", kind="b")
    response = post(root, HotJob, action, query)
    assert response.status_code == 302
    [message] = said(response)
    assert text in message
    assert bulk_jobs() == []


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("?ended=rescued", {"state": "failed", "ended": "rescued"}),
        ("?q=some.kind", {"kind": "some.kind"}),
        ("?q=tag:spring&queue=mail", {"tags": ["spring"], "queue": "mail"}),
    ],
)
def test_filters_and_searches_that_can(query: str, wanted: dict[str, Any], root: Client) -> None:
    insert_job("failed", kind="some.kind")
    confirm(root, HotJob, "retry_jobs", query)
    [job] = bulk_jobs()
    nothing: dict[str, Any] = {"state": None, "kind": None, "queue": None, "tags": [], "ended": None}
    assert {name: job.args["selection"].get(name) or value for name, value in nothing.items()} == {
        **nothing, **wanted,
    }  # fmt: skip


def test_the_page_counts_to_a_cap_in_few_statements(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "COUNT_CAP", 3)
    for _ in range(5):
        insert_job("failed")
    post(root, HotJob, "retry_jobs", "?state=failed")  # content types, the catalogue
    with CaptureQueriesContext(
        connection,
    ) as captured:
        page = post(root, HotJob, "retry_jobs", "?state=failed").content.decode()
    assert "over 3" in " ".join(page.split())
    few = len(captured)
    for _ in range(30):
        insert_job("failed")
    with CaptureQueriesContext(connection) as captured:
        post(root, HotJob, "retry_jobs", "?state=failed")
    assert len(captured) == few


def test_the_queue_is_a_setting_and_its_pause_is_told(root: Client, settings: Any) -> None:
    settings.AWA = {**getattr(settings, "AWA", {}), "BULK_QUEUE": "upkeep"}
    insert_job("failed")
    pause_queue("upkeep")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.runtime_instances (name, hostname, pid, version, queues, concurrency, "
            "running_count) VALUES ('w', 'h', 1, '1', '{upkeep}', 1, 0)"
        )
    page = post(root, HotJob, "retry_jobs", "?state=failed").content.decode()
    assert "The queue upkeep is paused" in page
    assert "No worker serves" not in page
    confirm(root, HotJob, "retry_jobs", "?state=failed")
    assert bulk_jobs()[0].queue == "upkeep"


def test_it_needs_the_permission_of_the_action(login: Login) -> None:
    insert_job("failed")
    allowed = login("view_hotjob", "retry_job")
    selection = signed(post(allowed, HotJob, "retry_jobs", "?state=failed"))
    data = {"confirmed": "1", "selection": selection}
    post(login("view_hotjob", "cancel_job"), HotJob, "retry_jobs", "?state=failed", **data)
    assert bulk_jobs() == []
    response = post(allowed, HotJob, "retry_jobs", "?state=failed", **data)
    assert response["Location"] == reverse("admin:awa_hotjob_change", args=[bulk_jobs()[0].pk])


@pytest.mark.parametrize("state", ["cancelled", "failed"])
@pytest.mark.fault("F82", injected="a stopped operation on all that match, resumed by who may only retry")
def test_it_is_resumed_by_who_may_do_what_it_does(login: Login, root: Client, state: str) -> None:
    """Whoever may retry jobs could have others deleted, once somebody stopped that."""
    insert_job("failed", kind="k")
    confirm(root, Job, "delete_jobs", "?kind=k")
    [job] = bulk_jobs()
    update_job(job.pk, state=f"'{state}'", finalized_at="now()")
    forged = insert_job(state, kind=BULK_KIND, args={"change": {"operation": "no"}})
    plain = insert_job(state)
    url = reverse("admin:awa_hotjob_changelist")
    data = {"action": "retry_jobs", ACTION_CHECKBOX_NAME: [job.pk, forged, plain]}
    response = login("view_hotjob", "retry_job").post(url, data)
    assert [reload_job(job_id).state for job_id in (job.pk, forged, plain)] == [state, state, "available"]
    assert f"job {job.pk} does to many what you may not do to one" in said(response)[-1]
    entry = LogEntry.objects.get(object_id=str(job.pk), change_message__startswith="Retry")
    assert entry.change_message == "Retry: left alone: does to many what you may not do to one."
    login("view_hotjob", "retry_job", "delete_job").post(url, data)
    assert [reload_job(job_id).state for job_id in (job.pk, forged)] == ["available", state]


def test_all_that_were_stopped_are_not_resumed_at_once(root: Client) -> None:
    insert_job("cancelled", kind=BULK_KIND)
    response = post(root, HotJob, "retry_jobs", f"?kind={BULK_KIND}")
    assert "resumed one by one" in said(response)[-1]


def test_the_list_offers_it_where_there_are_more_than_a_page(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_job(), insert_job()
    url = reverse("admin:awa_hotjob_changelist")
    assert "Select all that match" not in root.get(url).content.decode()
    monkeypatch.setattr("awa_django.admin.jobs.HotJobAdmin.list_per_page", 1)
    assert "Select all that match (2)" in root.get(url).content.decode()


def test_an_old_page_is_asked_anew(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    insert_job("failed")
    selection = signed(post(root, HotJob, "retry_jobs", "?state=failed"))
    monkeypatch.setattr("awa_django.admin.matching.LONGEST", -timedelta(seconds=1))
    response = post(root, HotJob, "retry_jobs", "?state=failed", confirmed="1", selection=selection)
    assert "too old" in response.content.decode()
    assert bulk_jobs() == []
