"""The page of one job, for each of the three lists that lead to it."""

from __future__ import annotations

from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from awa_django.admin import detail
from awa_django.admin.actions import JobActionsMixin
from awa_django.admin.base import url_of
from awa_django.admin.limits import TooSlow, limited_by_a_row, too_slow
from awa_django.admin.way_back import carried, to_list
from awa_django.conf import get_settings
from awa_django.models import DeferredJob, HotJob, Job
from awa_django.operations import LARGEST_ID


class JobPageMixin(JobActionsMixin):
    """Gives a list of jobs the page of one of them, with the actions that its state allows."""

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        page, live = wrap(require_safe(self.detail_view)), wrap(require_safe(self.live_view))
        return [
            *super().get_urls(),
            path("<int:object_id>/change/", page, name=f"{name}_change"),
            path("<int:object_id>/live/", live, name=f"{name}_live"),
        ]

    def detail_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        return self._show(request, object_id, "change", "admin/awa/job.html")

    def live_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The parts of the page that change while the job is unfinished, for its script."""
        return self._show(request, object_id, "live", "admin/awa/job_live.html")

    def _show(self, request: HttpRequest, object_id: int, view: str, template: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        content_type = ContentType.objects.get_for_model(Job)
        try:
            with limited_by_a_row(get_settings().database):
                job = detail.find(self.model, object_id) if object_id <= LARGEST_ID else None
                if job is None:
                    return self._elsewhere(request, object_id, view)
                log = detail.log_of(job, content_type)
                shown = detail.context(job, log, request, site_name=self.admin_site.name)
        except TooSlow:
            return too_slow(self, request)
        request.current_app = self.admin_site.name
        site = self.admin_site
        context = {
            **(site.each_context(request) if view == "change" else {}),
            **shown,
            "title": _("Job %(id)s") % {"id": job.pk},
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            "is_live": view == "live",
            "actions": [action for action in self.allowed_job_actions(request) if job.state in action.states],
            "list_url": to_list(url_of(site.name, self.model, "changelist"), request),
            "live_url": carried(url_of(site.name, self.model, "live", job.pk), request),
            "arguments_url": carried(url_of(site.name, self.model, "arguments", job.pk), request),
        }
        return TemplateResponse(request, template, context)

    def _elsewhere(self, request: HttpRequest, object_id: int, view: str) -> HttpResponse:
        """A job that has moved to the other table has its page there."""
        for model in (HotJob, DeferredJob):
            if model is self.model or not request.user.has_perm(f"awa.view_{model._meta.model_name}"):
                continue
            if object_id <= LARGEST_ID and model.objects.filter(pk=object_id).exists():
                return HttpResponseRedirect(url_of(self.admin_site.name, model, view, object_id))
        raise Http404(f"job {object_id} does not exist, or was deleted after its retention")
