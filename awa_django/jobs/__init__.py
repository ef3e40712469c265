"""``@job`` and ``@periodic``, and the Job object that they make: what application code calls."""

from __future__ import annotations

from awa_django.enqueue import enqueue_many
from awa_django.jobs.declare import job, periodic
from awa_django.jobs.job import ContextJob, Job
from awa_django.jobs.snapshot import JobSnapshot

__all__ = ["ContextJob", "Job", "JobSnapshot", "enqueue_many", "job", "periodic"]
