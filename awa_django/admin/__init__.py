"""The admin pages: hot, deferred and all jobs, queues, unique claims, workers, cron, leader duties."""

from awa_django.admin import claims, cron, jobs, queues, workers

__all__ = ["claims", "cron", "jobs", "queues", "workers"]
