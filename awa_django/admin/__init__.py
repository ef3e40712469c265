"""The admin pages: dashboard, jobs (hot, deferred, all), queues, unique claims, workers, cron, duties."""

from __future__ import annotations

from django.contrib.admin import AdminSite

from awa_django.admin import claims, cron, dashboard, jobs, queues, workers
from awa_django.admin.claims import UniqueClaimAdmin
from awa_django.admin.cron import CronJobAdmin
from awa_django.admin.dashboard.page import Dashboard, DashboardAdmin
from awa_django.admin.jobs import AllJobsAdmin, DeferredJobAdmin, HotJobAdmin
from awa_django.admin.queues import QueueMetaAdmin
from awa_django.admin.workers import LeaderLeaseAdmin, RuntimeInstanceAdmin
from awa_django.models import (
    CronJob,
    DeferredJob,
    HotJob,
    Job,
    LeaderLease,
    QueueMeta,
    RuntimeInstance,
    UniqueClaim,
)

__all__ = ["PAGES", "claims", "cron", "dashboard", "jobs", "queues", "register", "workers"]

PAGES = {
    Dashboard: DashboardAdmin,
    HotJob: HotJobAdmin,
    DeferredJob: DeferredJobAdmin,
    Job: AllJobsAdmin,
    QueueMeta: QueueMetaAdmin,
    UniqueClaim: UniqueClaimAdmin,
    RuntimeInstance: RuntimeInstanceAdmin,
    CronJob: CronJobAdmin,
    LeaderLease: LeaderLeaseAdmin,
}


def register(site: AdminSite) -> None:
    """Give another site of the admin all these pages; Django's default one has them already."""
    for model, page in PAGES.items():
        site.register(model, page)
