"""The page of one job, for each of the three lists that lead to it."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_safe

from awa_django.admin import detail
from awa_django.admin.actions import JobActionsMixin
from awa_django.models import DeferredJob, HotJob, Job
from awa_django.operations import LARGEST_ID


class JobPageMixin(JobActionsMixin):
    """Gives a list of jobs the page of one of them, with the actions that its state allows."""

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_change"
        view = self.admin_site.admin_view(require_safe(self.detail_view))
        return [*super().get_urls(), path("<int:object_id>/change/", view, name=name)]

    def detail_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        job = detail.find(self.model, object_id) if object_id <= LARGEST_ID else None
        if job is None:
            return self._elsewhere(request, object_id)
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            **detail.context(job, request, site_name=self.admin_site.name),
            "title": f"Job {job.pk}",
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            "actions": [action for action in self.allowed_job_actions(request) if job.state in action.states],
            "list_url": reverse(
                f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist",
                current_app=self.admin_site.name,
            ),
            "log_entries": LogEntry.objects.filter(
                content_type=ContentType.objects.get_for_model(Job), object_id=str(job.pk)
            )
            .select_related("user")
            .order_by("-action_time", "-pk")[: detail.LOG_ENTRIES_SHOWN],
        }
        return TemplateResponse(request, "admin/awa/job.html", context)

    def _elsewhere(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """A job that has moved to the other table has its page there."""
        for model in (HotJob, DeferredJob):
            if model is self.model or not request.user.has_perm(f"awa.view_{model._meta.model_name}"):
                continue
            if object_id <= LARGEST_ID and model.objects.filter(pk=object_id).exists():
                name = f"admin:awa_{model._meta.model_name}_change"
                return HttpResponseRedirect(reverse(name, args=[object_id], current_app=self.admin_site.name))
        raise Http404(f"job {object_id} does not exist, or was deleted after its retention")
