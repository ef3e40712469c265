"""Unmanaged models over the ``awa`` schema: reads by the ORM everywhere, writes where they are safe."""

from awa_django.models.jobs import DeferredJob, HotJob, Job
from awa_django.models.small import (
    CronJob,
    JobKind,
    LeaderLease,
    QueueMeta,
    QueueStats,
    RuntimeInstance,
    UniqueClaim,
)

__all__ = [
    "CronJob",
    "DeferredJob",
    "HotJob",
    "Job",
    "JobKind",
    "LeaderLease",
    "QueueMeta",
    "QueueStats",
    "RuntimeInstance",
    "UniqueClaim",
]
