"""Schedules, and when each fires next."""

from __future__ import annotations

from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from awa_django.admin.base import ListOnlyAdmin, show_date, show_instant
from awa_django.cron import next_fires
from awa_django.errors import ConfigurationError
from awa_django.models import CronJob

FIRES_SHOWN = 3


@admin.register(CronJob)
class CronJobAdmin(ListOnlyAdmin):
    """What is enqueued by the clock."""

    list_display = ("schedule", "expression", "job_kind", "job_queue", "state", "last_fire", "next_fires")
    ordering = ("name",)

    @admin.display(description="name")
    def schedule(self, cron: CronJob) -> str:
        return cron.name

    @admin.display(description="expression")
    def expression(self, cron: CronJob) -> str:
        return format_html("<code>{}</code> {}", cron.cron_expr, cron.timezone)

    @admin.display(description="kind")
    def job_kind(self, cron: CronJob) -> str:
        return cron.kind

    @admin.display(description="queue")
    def job_queue(self, cron: CronJob) -> str:
        return cron.queue

    @admin.display(description="state")
    def state(self, cron: CronJob) -> str:
        name, label = ("retryable", "paused") if cron.paused else ("completed", "active")
        return format_html('<span class="awa-state awa-state-{}">{}</span>', name, label)

    @admin.display(description="last fire")
    def last_fire(self, cron: CronJob) -> str:
        return show_instant(cron.last_enqueued_at)

    @admin.display(description="next fires")
    def next_fires(self, cron: CronJob) -> str:
        if cron.paused:
            return "-"
        try:
            fires = next_fires(cron.cron_expr, cron.timezone, timezone.now(), FIRES_SHOWN)
        except (ConfigurationError, ValueError, OverflowError) as exc:  # a row that somebody wrote by hand
            return f"cannot be computed: {exc}"
        return format_html_join(" · ", "{}", ((show_date(fire),) for fire in fires)) or "never"
