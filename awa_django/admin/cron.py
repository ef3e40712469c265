"""Schedules: when each fires next; they are paused, resumed and run from here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from awa_django import schedules
from awa_django.admin.base import ListOnlyAdmin, distance, log, show_instant
from awa_django.admin.words import grouped
from awa_django.conf import get_settings
from awa_django.cron import next_fires
from awa_django.errors import ConfigurationError, ScheduleNotFound, UniqueConflict
from awa_django.models import CronJob
from awa_django.storage.cron_jobs import DECLARED_WITHIN


@admin.register(CronJob)
class CronJobAdmin(ListOnlyAdmin):
    """What is enqueued by the clock."""

    list_display = (
        "schedule", "expression", "job_kind", "job_queue", "state", "last_fire", "next_fires", "missed_fires"
    )  # fmt: skip
    ordering = ("name",)
    actions = ("pause_schedules", "resume_schedules", "run_schedules_now")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("awa.pause_cronjob"))

    def has_run_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("awa.run_cronjob"))

    @admin.action(description=_l("Pause"), permissions=["pause"])
    def pause_schedules(self, request: HttpRequest, selected: QuerySet[CronJob]) -> None:
        pause = partial(schedules.pause, by=request.user.get_username())
        self._change(request, selected, pause, "Paused the schedule.", _("Paused %(name)s."))

    @admin.action(description=_l("Resume, from now on"), permissions=["pause"])
    def resume_schedules(self, request: HttpRequest, selected: QuerySet[CronJob]) -> None:
        self._change(request, selected, schedules.resume, "Resumed the schedule.", _("Resumed %(name)s."))

    @admin.action(description=_l("Run now"), permissions=["run"])
    def run_schedules_now(self, request: HttpRequest, selected: QuerySet[CronJob]) -> None:
        run = partial(schedules.run_now, by=request.user.get_username())
        entry, told = "Enqueued job %(done)s of the schedule.", _("Enqueued job %(done)s of %(name)s.")
        self._change(request, selected, run, entry, told)

    def _change(
        self,
        request: HttpRequest,
        selected: QuerySet[CronJob],
        change: Callable[[str], object],
        entry: str,
        told: str,
    ) -> None:
        """Change each schedule and say what was done; one that is gone meanwhile is said to be so.

        ``entry`` is for the log, ``told`` for the user; ``change`` answers nothing where nothing changed.
        """
        for name in selected.order_by("name").values_list("name", flat=True):
            try:
                with transaction.atomic(using=get_settings().database):
                    done = change(name)
                    if done:
                        log(request, CronJob, [(name, name, CHANGE, entry % {"done": done})])
            except ScheduleNotFound:
                text = _("There is no schedule %(name)s any more.") % {"name": name}
                self.message_user(request, text, messages.ERROR)
                continue
            except UniqueConflict as exc:
                text = _("Nothing is enqueued for %(name)s: job %(holder)s holds its unique key.") % {
                    "name": name, "holder": exc.holder_id or "?"
                }  # fmt: skip
                self.message_user(request, text, messages.WARNING)
                continue
            text = (told if done else _("Nothing to change: %(name)s.")) % {"name": name, "done": done}
            self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)

    @admin.display(description=_l("name"))
    def schedule(self, cron: CronJob) -> str:
        return cron.name

    @admin.display(description=_l("expression"))
    def expression(self, cron: CronJob) -> str:
        return format_html("<code>{}</code> {}", cron.cron_expr, cron.timezone)

    @admin.display(description=_l("kind"))
    def job_kind(self, cron: CronJob) -> str:
        return cron.kind

    @admin.display(description=_l("queue"))
    def job_queue(self, cron: CronJob) -> str:
        return cron.queue

    @admin.display(description=_l("state"))
    def state(self, cron: CronJob) -> str:
        if cron.paused:
            by = _("by %(who)s") % {"who": cron.paused_by} if cron.paused_by else ""
            return _label("retryable", _("paused"), by)
        if cron.declared_at is not None and cron.declared_at < timezone.now() - DECLARED_WITHIN:
            return _label("unknown", _("undeclared"), _("no running worker declares it, so it does not fire"))
        return _label("completed", _("active"), "")

    @admin.display(description=_l("last fire"))
    def last_fire(self, cron: CronJob) -> str:
        return show_instant(cron.last_enqueued_at)

    @admin.display(description=_l("next fires"))
    def next_fires(self, cron: CronJob) -> str:
        """The next one, and behind it all ten, as the clock of the schedule's zone will show them."""
        try:
            fires = next_fires(cron.cron_expr, cron.timezone, timezone.now(), schedules.FIRES_SHOWN)
        except (ConfigurationError, ValueError, OverflowError) as exc:  # a row that somebody wrote by hand
            return _("cannot be computed: %(problem)s") % {"problem": exc}
        if not fires:
            return _("never")
        zone = ZoneInfo(cron.timezone)
        items = format_html_join("", "<li>{}</li>", ((_show_fire(fire, zone),) for fire in fires))
        return format_html(
            "<details><summary>{}</summary><ol>{}</ol></details>", _show_fire(fires[0], zone), items
        )

    @admin.display(description=_l("missed fires"))
    def missed_fires(self, cron: CronJob) -> str:
        policy = f"{cron.missed}, {cron.catch_up_limit}" if cron.missed == "catch_up" else cron.missed
        return _("%(policy)s; %(count)s skipped") % {"policy": policy, "count": grouped(cron.skipped_count)}


def _label(style: str, text: str, title: str) -> str:
    return format_html('<span class="awa-state awa-state-{}" title="{}">{}</span>', style, title, text)


def _show_fire(fire: datetime, zone: ZoneInfo) -> str:
    local = fire.astimezone(zone)
    return format_html(
        '<time class="awa-time" datetime="{}" title="{}, {} UTC">{}</time>',
        fire.isoformat(), distance(fire), f"{fire:%Y-%m-%d %H:%M:%S}", f"{local:%Y-%m-%d %H:%M:%S %Z}",
    )  # fmt: skip
