"""Hot jobs, deferred jobs, all jobs: their lists."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from awa_django.admin import changelist, search
from awa_django.admin.base import ListOnlyAdmin, show_instant, show_state
from awa_django.admin.detail_view import JobPageMixin
from awa_django.admin.filters import EndFilter, KindFilter, QueueFilter, StateFilter, names_for
from awa_django.models import DeferredJob, HotJob, Job

# A list reads these and no more: no arguments, errors or results.
LIST_COLUMNS = (
    "id", "kind", "queue", "state", "priority", "attempt", "max_attempts", "run_at", "created_at"
)  # fmt: skip


class JobAdmin(JobPageMixin, ListOnlyAdmin):
    """A list of jobs, and the page of one of them."""

    # What is asked of a list first comes first: on a narrow screen the last columns are out of sight.
    list_display: Any = (
        "id", "job_kind", "job_queue", "job_state", "due", "attempts", "job_priority", "created"
    )  # fmt: skip
    list_display_links = ("id",)
    list_filter: Any = (StateFilter, QueueFilter, KindFilter)  # type: ignore[misc]
    search_fields = ("id",)
    search_help_text = search.HELP
    sortable_by: Any = ("id",)  # type: ignore[misc]
    ordering: Any = ("-id",)  # type: ignore[misc]
    actions_selection_counter = True

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[changelist.JobChangeList]:
        return changelist.JobChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).only(*LIST_COLUMNS)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        return search.read(term, names_for(request).matches).apply(queryset), False

    @admin.display(description=_("kind"))
    def job_kind(self, job: Job) -> str:
        return job.kind

    @admin.display(description=_("queue"))
    def job_queue(self, job: Job) -> str:
        return job.queue

    @admin.display(description=_("state"))
    def job_state(self, job: Job) -> str:
        return show_state(job.state)

    @admin.display(description=_("priority"))
    def job_priority(self, job: Job) -> int:
        return job.priority

    @admin.display(description=_("attempts"))
    def attempts(self, job: Job) -> str:
        return f"{job.attempt} / {job.max_attempts}"

    @admin.display(description=_("run at"))
    def due(self, job: Job) -> str:
        return show_instant(job.run_at)

    @admin.display(description=_("created"))
    def created(self, job: Job) -> str:
        return show_instant(job.created_at)


@admin.register(HotJob)
class HotJobAdmin(JobAdmin):
    """What can run now, runs, or has ended."""

    list_filter: Any = (StateFilter, EndFilter, QueueFilter, KindFilter)  # type: ignore[misc]
    job_actions: tuple[str, ...] = (
        "retry_jobs", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs", "delete_jobs"
    )  # fmt: skip


@admin.register(DeferredJob)
class DeferredJobAdmin(JobAdmin):
    """What waits for its time: scheduled, or for a retry. Soonest first."""

    ordering: Any = ("run_at", "id")  # type: ignore[misc]
    sortable_by: Any = ("id", "due")  # type: ignore[misc]
    job_actions: tuple[str, ...] = (
        "run_jobs_now", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs", "delete_jobs"
    )  # fmt: skip

    @admin.display(description=_("run at"), ordering="run_at")
    def due(self, job: Job) -> str:
        return show_instant(job.run_at)


@admin.register(Job)
class AllJobsAdmin(JobAdmin):
    """Both tables as one."""

    job_actions: tuple[str, ...] = (
        "retry_jobs", "run_jobs_now", "cancel_jobs", "set_priority_of_jobs", "reschedule_jobs", "move_jobs",
        "delete_jobs",
    )  # fmt: skip
