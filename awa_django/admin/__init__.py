"""The admin pages: dashboard, jobs (hot, deferred, all), queues, unique claims, workers, cron, duties."""

from awa_django.admin import claims, cron, dashboard, jobs, queues, workers

__all__ = ["claims", "cron", "dashboard", "jobs", "queues", "workers"]
