"""The live processes, and who does the duties of the whole installation."""

from __future__ import annotations

from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from awa_django.admin.base import ListOnlyAdmin, show_instant
from awa_django.admin.words import WORKER_STATES
from awa_django.conf import get_settings
from awa_django.models import LeaderLease, RuntimeInstance
from awa_django.storage.status import worker_state


@admin.register(RuntimeInstance)
class RuntimeInstanceAdmin(ListOnlyAdmin):
    """Supervisors and their children, as they report themselves."""

    list_display = ("process", "role", "place", "serves", "load", "started", "seen", "health", "release")
    ordering = ("name",)

    @admin.display(description=_l("process"))
    def process(self, instance: RuntimeInstance) -> str:
        return instance.name

    @admin.display(description=_l("role"))
    def role(self, instance: RuntimeInstance) -> str:
        if not instance.supervisor:
            return _("supervisor")
        return _("child of %(name)s") % {"name": instance.supervisor}

    @admin.display(description=_l("host and pid"))
    def place(self, instance: RuntimeInstance) -> str:
        return f"{instance.hostname}:{instance.pid}"

    @admin.display(description=_l("queues"))
    def serves(self, instance: RuntimeInstance) -> str:
        return ", ".join(instance.queues) or "-"

    @admin.display(description=_l("running"))
    def load(self, instance: RuntimeInstance) -> str:
        if not instance.concurrency:
            return "-"
        return _("%(n)s of %(of)s") % {"n": instance.running_count, "of": instance.concurrency}

    @admin.display(description=_l("started"))
    def started(self, instance: RuntimeInstance) -> str:
        return show_instant(instance.started_at)

    @admin.display(description=_l("last seen"))
    def seen(self, instance: RuntimeInstance) -> str:
        return show_instant(instance.last_seen_at)

    @admin.display(description=_l("health"))
    def health(self, instance: RuntimeInstance) -> str:
        unseen = timezone.now() - instance.last_seen_at
        stale_after = get_settings().stale_after
        label, tone = WORKER_STATES[worker_state(unseen, draining=instance.draining, stale_after=stale_after)]
        return format_html('<span class="awa-state awa-state-{}">{}</span>', tone, label)

    @admin.display(description=_l("version"))
    def release(self, instance: RuntimeInstance) -> str:
        return instance.version


@admin.register(LeaderLease)
class LeaderLeaseAdmin(ListOnlyAdmin):
    """Each duty is done by whoever holds its lease."""

    list_display = ("name", "held_by", "terms", "until")
    ordering = ("duty",)

    @admin.display(description=_l("duty"))
    def name(self, lease: LeaderLease) -> str:
        return lease.duty

    @admin.display(description=_l("holder"))
    def held_by(self, lease: LeaderLease) -> str:
        if lease.holder is None or lease.expires_at <= timezone.now():
            return _("nobody")
        return lease.holder

    @admin.display(description=_l("epoch"))
    def terms(self, lease: LeaderLease) -> int:
        return lease.epoch

    @admin.display(description=_l("lease ends"))
    def until(self, lease: LeaderLease) -> str:
        return show_instant(lease.expires_at) if lease.holder else "-"
