"""The pages on a site of the project's own, under another prefix, and in subclasses of the project's own."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client
from django.urls import path, reverse

from awa_django.admin import PAGES, register
from awa_django.admin.jobs import HotJobAdmin
from awa_django.models import HotJob, Job
from tests.admin import routes
from tests.factories import insert_job

pytestmark = pytest.mark.django_db
NAME = "desk"
LEADS_OUT = re.compile(r'(?:href|action|data-url)="(/admin/[^"]*)"')


class Desk(admin.AdminSite):
    site_header = "The desk"


def serve(settings: Any, site: admin.AdminSite) -> None:
    """Under a prefix of its own, beside the default site."""
    urls: Any = ModuleType("desk_urls")
    urls.urlpatterns = [path("back/office/", site.urls), path("admin/", admin.site.urls)]
    settings.ROOT_URLCONF = urls


@pytest.fixture
def desk(settings: Any) -> admin.AdminSite:
    """A site beside the default one, which has our pages alone."""
    site = Desk(name=NAME)
    register(site)
    serve(settings, site)
    return site


def test_every_page_of_the_default_site_is_among_them() -> None:
    assert {model._meta.model_name for model in PAGES} == set(routes.PAGES)
    for model, page in PAGES.items():
        assert type(routes.PAGES[str(model._meta.model_name)]) is page


def test_no_page_of_an_own_site_leads_to_the_default_one(root: Client, desk: admin.AdminSite) -> None:
    routes.insert_rows()
    readable = [name for name, access in routes.ACCESS.items() if access.read is not None]
    for name in readable:
        route = routes.ROUTES[name]
        arguments = {key: routes.EXAMPLES[key](route) for key in route.arguments}
        url = reverse(f"admin:{name}", kwargs=arguments, current_app=NAME)
        assert url.startswith("/back/office/awa/")
        response = root.get(url)
        assert response.status_code == 200, url
        text = response.content.decode().replace('\\"', '"')
        assert LEADS_OUT.findall(text) == [], url


def test_an_action_and_a_pause_stay_on_an_own_site(root: Client, desk: admin.AdminSite) -> None:
    job_id = insert_job("failed")
    url = reverse("admin:awa_hotjob_changelist", current_app=NAME)
    data = {"action": "retry_jobs", "index": "0", "from_detail": "1", ACTION_CHECKBOX_NAME: str(job_id)}
    assert root.post(url, data)["Location"] == f"/back/office/awa/hotjob/{job_id}/change/"
    assert Job.objects.get(pk=job_id).state == "available"
    pause = reverse("admin:awa_queuemeta_pause", current_app=NAME)
    assert root.post(pause, {"queue": "mail"})["Location"] == "/back/office/awa/queuemeta/"


class TenantHotJobAdmin(HotJobAdmin):
    """As a project would have it: another column, fewer actions."""

    list_display = (*HotJobAdmin.list_display, "tenant")
    job_actions = ("retry_jobs",)

    @admin.display(description="tenant")
    def tenant(self, job: HotJob) -> str:
        return f"tenant of {job.pk}"


def test_a_page_can_be_unregistered_and_subclassed(
    root: Client, desk: admin.AdminSite, settings: Any
) -> None:
    desk.unregister(HotJob)
    desk.register(HotJob, TenantHotJobAdmin)
    serve(settings, desk)
    job_id = insert_job("failed")
    page = root.get(reverse("admin:awa_hotjob_changelist", current_app=NAME)).content.decode()
    detail = root.get(reverse("admin:awa_hotjob_change", args=[job_id], current_app=NAME))
    assert f"tenant of {job_id}" in page
    assert "retry_jobs" in page
    assert "delete_jobs" not in page
    assert [action.name for action in detail.context["actions"]] == ["retry_jobs"]
