"""Hot jobs, deferred jobs, all jobs: their lists, and the page of one job."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_safe

from awa_django.admin import detail
from awa_django.admin.actions import JobActionsMixin
from awa_django.admin.base import CHOICES_CAP, ListOnlyAdmin, show_instant, show_state
from awa_django.admin.filters import EndFilter, KindFilter, QueueFilter, StateFilter
from awa_django.models import DeferredJob, HotJob, Job, JobKind, UniqueClaim
from awa_django.operations import LARGEST_ID

# A list reads these and no more: no arguments, errors or results.
LIST_COLUMNS = (
    "id", "kind", "queue", "state", "priority", "attempt", "max_attempts", "run_at", "created_at"
)  # fmt: skip
_KEY = re.compile(r"[0-9a-fA-F]{32}")


class JobAdmin(JobActionsMixin, ListOnlyAdmin):
    """A list of jobs, and the page of one of them."""

    # What is asked of a list first comes first: on a narrow screen the last columns are out of sight.
    list_display = ("id", "job_kind", "job_queue", "job_state", "due", "attempts", "job_priority", "created")
    list_display_links = ("id",)
    list_filter: Any = (StateFilter, QueueFilter, KindFilter)  # type: ignore[misc]
    search_fields = ("id",)
    search_help_text = (
        "An id, a kind or a part of one, or the 32 hexadecimal digits of a unique key that is held."
    )
    sortable_by: Any = ("id",)  # type: ignore[misc]
    ordering: Any = ("-id",)  # type: ignore[misc]
    actions_selection_counter = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).only(*LIST_COLUMNS)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isascii() and term.isdecimal() and len(term) < 20:
            wanted = Q(pk=int(term))
        else:
            kinds = JobKind.objects.filter(kind__icontains=term).values_list("kind", flat=True)
            wanted = Q(kind__in=[term, *kinds[:CHOICES_CAP]])
        if _KEY.fullmatch(term):
            holders = UniqueClaim.objects.filter(unique_key=term).values_list("job_id", flat=True)
            wanted |= Q(pk__in=list(holders))
        return queryset.filter(wanted), False

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

    @admin.display(description="kind")
    def job_kind(self, job: Job) -> str:
        return job.kind

    @admin.display(description="queue")
    def job_queue(self, job: Job) -> str:
        return job.queue

    @admin.display(description="state")
    def job_state(self, job: Job) -> str:
        return show_state(job.state)

    @admin.display(description="priority")
    def job_priority(self, job: Job) -> int:
        return job.priority

    @admin.display(description="attempts")
    def attempts(self, job: Job) -> str:
        return f"{job.attempt} / {job.max_attempts}"

    @admin.display(description="run at")
    def due(self, job: Job) -> str:
        return show_instant(job.run_at)

    @admin.display(description="created")
    def created(self, job: Job) -> str:
        return show_instant(job.created_at)


@admin.register(HotJob)
class HotJobAdmin(JobAdmin):
    """What can run now, runs, or has ended."""

    list_filter: Any = (StateFilter, EndFilter, QueueFilter, KindFilter)  # type: ignore[misc]
    job_actions = (
        "retry_jobs", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs", "delete_jobs"
    )  # fmt: skip


@admin.register(DeferredJob)
class DeferredJobAdmin(JobAdmin):
    """What waits for its time: scheduled, or for a retry. Soonest first."""

    ordering: Any = ("run_at", "id")  # type: ignore[misc]
    sortable_by: Any = ("id", "due")  # type: ignore[misc]
    job_actions = (
        "run_jobs_now", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs", "delete_jobs"
    )  # fmt: skip

    @admin.display(description="run at", ordering="run_at")
    def due(self, job: Job) -> str:
        return show_instant(job.run_at)


@admin.register(Job)
class AllJobsAdmin(JobAdmin):
    """Both tables as one."""

    job_actions = (
        "retry_jobs", "run_jobs_now", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs",
        "delete_jobs",
    )  # fmt: skip
