"""Who sees and does what: every page and action, for every kind of user."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from awa_django.admin.actions import JOB_ACTIONS
from awa_django.admin.base import ListOnlyAdmin
from awa_django.models import DeferredJob, HotJob, Job, QueueMeta
from tests.admin.conftest import Login
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

PAGES = {
    model._meta.model_name: page
    for model, page in admin.site._registry.items()
    if model._meta.app_label == "awa"
}
NAMES = sorted(name for name in PAGES if name)
FORM_DATA = {"priority": "3", "run_at_0": "2030-01-01", "run_at_1": "10:00", "queue": "other"}


def changelist(name: str) -> str:
    return reverse(f"admin:awa_{name}_changelist")


def job_for(action: str, model: Any) -> int:
    """A job on the page of the model that the action would change."""
    if model is DeferredJob or action == "run_jobs_now":
        return insert_job("scheduled")
    return insert_job("failed" if action == "retry_jobs" else "available")


CASES = [
    (model, action)
    for model in (HotJob, DeferredJob, Job)
    for action in admin.site._registry[model].job_actions  # type: ignore[attr-defined]
]


def post_action(client: Client, model: Any, action: str, job_id: int, **data: str) -> Any:
    return client.post(
        changelist(model._meta.model_name),
        {"action": action, ACTION_CHECKBOX_NAME: [job_id], "index": "0", **data},
    )


def test_every_page_of_the_app_only_lists() -> None:
    assert NAMES == [
        "cronjob", "deferredjob", "hotjob", "job", "leaderlease", "queuemeta", "runtimeinstance",
        "uniqueclaim",
    ]  # fmt: skip
    for page in PAGES.values():
        assert isinstance(page, ListOnlyAdmin)
        names = {str(url.name) for url in page.get_urls()}
        assert not any(name.endswith(("_add", "_delete", "_history")) for name in names)


def test_permissions_exist_for_pages_and_verbs() -> None:
    permissions = Permission.objects.filter(content_type__app_label="awa")
    codenames = set(permissions.values_list("codename", flat=True))
    assert {f"view_{name}" for name in NAMES} <= codenames
    assert {action.permission for action in JOB_ACTIONS.values()} <= codenames
    assert "pause_queue" in codenames
    assert not [name for name in codenames if name.startswith(("add_", "change_"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_list_is_for_those_who_may_view_it(name: str, login: Login) -> None:
    insert_job(kind="hidden.kind")
    url = changelist(name)
    others = [f"view_{other}" for other in NAMES if other != name]
    assert Client().get(url).status_code == 302
    assert login(f"view_{name}", is_staff=False).get(url).status_code == 302
    for client in (login(), login(*others)):
        response = client.get(url)
        assert response.status_code == 403
        assert b"hidden.kind" not in response.content
    assert login(f"view_{name}").get(url).status_code == 200


@pytest.mark.parametrize("model", [HotJob, DeferredJob, Job])
def test_a_job_is_for_those_who_may_view_it(model: Any, login: Login) -> None:
    job_id = insert_job("scheduled" if model is DeferredJob else "available", kind="hidden.kind")
    name = model._meta.model_name
    url = reverse(f"admin:awa_{name}_change", args=[job_id])
    assert Client().get(url).status_code == 302
    for client in (login(), login("view_cronjob", "cancel_job")):
        response = client.get(url)
        assert response.status_code == 403
        assert b"hidden.kind" not in response.content
    viewer = login(f"view_{name}")
    page = viewer.get(url)
    assert page.status_code == 200
    assert b"<button" not in page.content.split(b'id="content-main"')[1].split(b"<footer")[0]  # no action
    for method in (viewer.post, viewer.put, viewer.delete):
        assert method(url).status_code == 405


@pytest.mark.parametrize("suffix", ["add/", "{}/delete/", "{}/history/", "{}/"])
@pytest.mark.parametrize("name", NAMES)
def test_no_other_url_exists(name: str, suffix: str, root: Client) -> None:
    assert root.get(changelist(name) + suffix.format(insert_job())).status_code == 404


@pytest.mark.parametrize(("model", "action"), CASES)
def test_an_action_needs_its_own_permission(model: Any, action: str, login: Login) -> None:
    view = f"view_{model._meta.model_name}"
    job_id = job_for(action, model)
    before = Job.objects.values().get(pk=job_id)
    others = {other.permission for other in JOB_ACTIONS.values()} - {JOB_ACTIONS[action].permission}
    data = {"confirmed": "1", **FORM_DATA}
    for client in (login(view), login(view, *others)):
        assert action not in client.get(changelist(model._meta.model_name)).content.decode()
        response = post_action(client, model, action, job_id, **data)
        assert response.status_code in (200, 302)  # the list again, without or with "no action selected"
        assert Job.objects.values().get(pk=job_id) == before
    without_view = login(JOB_ACTIONS[action].permission)
    assert post_action(without_view, model, action, job_id, **data).status_code == 403
    assert Job.objects.values().get(pk=job_id) == before

    allowed = login(view, JOB_ACTIONS[action].permission)
    assert post_action(allowed, model, action, job_id, **data).status_code == 302
    assert Job.objects.values().filter(pk=job_id).first() != before


@pytest.mark.parametrize(("model", "action"), CASES)
def test_an_action_needs_a_post_with_csrf(model: Any, action: str, login: Login) -> None:
    job_id = job_for(action, model)
    before = Job.objects.values().get(pk=job_id)
    client = login(f"view_{model._meta.model_name}", JOB_ACTIONS[action].permission, enforce_csrf_checks=True)
    data = {"confirmed": "1", **FORM_DATA}
    assert post_action(client, model, action, job_id, **data).status_code == 403
    query = {"action": action, ACTION_CHECKBOX_NAME: str(job_id), "index": "0", **data}
    client.get(changelist(model._meta.model_name), query)
    assert Job.objects.values().get(pk=job_id) == before


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pausing_needs_its_permission_a_post_and_csrf(verb: str, login: Login) -> None:
    url = reverse(f"admin:awa_queuemeta_{verb}")
    assert Client().post(url, {"queue": "mail"}).status_code == 302
    assert login("view_queuemeta").post(url, {"queue": "mail"}).status_code == 403
    assert login("pause_queue", enforce_csrf_checks=True).post(url, {"queue": "mail"}).status_code == 403
    allowed = login("pause_queue", "view_queuemeta")
    assert allowed.get(url).status_code == 405
    assert not QueueMeta.objects.exists()
    assert allowed.post(url, {"queue": "mail"}).status_code == 302
    assert QueueMeta.objects.filter(queue="mail").exists() == (verb == "pause")


def test_buttons_show_only_what_the_user_may_do(login: Login) -> None:
    job_id = insert_job()
    page = (
        login("view_job", "cancel_job").get(reverse("admin:awa_job_change", args=[job_id])).content.decode()
    )
    assert "cancel_jobs" in page
    assert "set_priority_of_jobs" not in page
    insert_job(queue="mail")
    assert (
        "Pause"
        not in login("view_queuemeta").get(changelist("queuemeta")).content.decode().split("<tbody>")[1]
    )
