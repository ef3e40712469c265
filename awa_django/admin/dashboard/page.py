"""The page and what its script asks for: both show the shared snapshot, as far as the user may see it.

There is no model behind it. Django's admin lists and routes models only, so it is registered by a
class that no app and no migration knows of; a user needs the permissions of the pages that it sums up.
"""

from __future__ import annotations

from typing import Any

from django.apps.registry import Apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from awa_django.admin.base import ListOnlyAdmin
from awa_django.admin.dashboard.charts import charts
from awa_django.admin.dashboard.panels import PANELS, panel_context
from awa_django.admin.dashboard.shared import FRESH_FOR, look
from awa_django.models import QueueMeta

# Whose pages are linked, and whose rows are shown only to those who may see these pages.
LINKED = ("hotjob", "deferredjob", "queuemeta", "runtimeinstance", "cronjob", "leaderlease")


class Dashboard(models.Model):
    """What the admin registers; it has no table and no rows."""

    class Meta:
        app_label = "awa"
        apps = Apps()
        managed = False
        verbose_name = verbose_name_plural = _("dashboard")

    def __str__(self) -> str:
        return "dashboard"


@admin.register(Dashboard)
class DashboardAdmin(ListOnlyAdmin):
    """For whoever may see the queues; workers, schedules and duties for whoever may see theirs."""

    class Media:
        css = {"all": ["awa/vendor/uplot/uPlot.min.css", "awa/dashboard.css"]}  # beside those of the lists
        js = ["awa/vendor/uplot/uPlot.iife.min.js", "awa/live.js", "awa/dashboard.js"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("awa.view_queuemeta"))

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(require_safe(self.changelist_view)), name="awa_dashboard_changelist"),
            path("data/", wrap(require_safe(self.data_view)), name="awa_dashboard_data"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Dashboard"),
            "opts": QueueMeta._meta,  # whose app is the one in the breadcrumbs
            "media": self.media,
            "data_url": reverse("admin:awa_dashboard_data", current_app=self.admin_site.name),
            "refresh_seconds": int(FRESH_FOR.total_seconds()),
            "figures": [
                ("throughput", _("Ended per minute")),
                ("wait", _("Wait")),
                ("run", _("Run time")),
            ],
            "may": {name: request.user.has_perm(f"awa.view_{name}") for name in LINKED},
            **self._seen(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/awa/dashboard.html", context)

    def data_view(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse(self._seen(request))

    def _seen(self, request: HttpRequest) -> dict[str, Any]:
        """The panels as HTML and the charts as numbers."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        seen = look()
        urls = {
            name: reverse(f"admin:awa_{name}_changelist", current_app=self.admin_site.name)
            for name in LINKED
            if request.user.has_perm(f"awa.view_{name}")
        }
        context = panel_context(seen, urls)
        shown = ("status",) if seen.snapshot is None else PANELS
        return {
            "panels": {name: render_to_string(f"admin/awa/dashboard/{name}.html", context) for name in shown},
            "charts": charts(seen.snapshot),
        }
