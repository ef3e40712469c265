"""The small tables round the queue."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _l

from awa_django.models.fields import HistogramField, JSONBField, TextArrayField, UniqueKeyField
from awa_django.models.jobs import ReadOnlyModel


class UniqueClaim(ReadOnlyModel):
    """Which job holds which unique key."""

    written_by = "claims follow the jobs by trigger; `manage.py awa_doctor` names those that do not."

    unique_key = UniqueKeyField(primary_key=True)
    job_id = models.BigIntegerField()

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."job_unique_claims"'
        verbose_name = _l("unique claim")
        verbose_name_plural = _l("unique claims")

    def __str__(self) -> str:
        return f"{bytes(self.unique_key).hex()} held by job {self.job_id}"


class QueueMeta(ReadOnlyModel):
    """A queue that is or was paused."""

    written_by = "use awa_django.operations.pause_queue and resume_queue."

    queue = models.TextField(primary_key=True)
    paused = models.BooleanField()
    paused_at = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)  # noqa: DJ001
    paused_until = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."queue_meta"'
        permissions = [("pause_queue", "Can pause and resume queues")]
        verbose_name = _l("queue")
        verbose_name_plural = _l("queues")

    def __str__(self) -> str:
        return self.queue


class CronJob(ReadOnlyModel):
    """A schedule that enqueues a job at each of its fire times."""

    written_by = (
        "schedules are declared with @periodic or AWA['PERIODIC'] and written by the workers; to pause, "
        "resume or run one use awa_django.schedules."
    )

    name = models.TextField(primary_key=True)
    cron_expr = models.TextField()
    timezone = models.TextField()
    kind = models.TextField()
    queue = models.TextField()
    args = JSONBField()
    priority = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    tags = TextArrayField()
    metadata = JSONBField()
    last_enqueued_at = models.DateTimeField(null=True)
    paused = models.BooleanField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    missed = models.TextField()
    catch_up_limit = models.SmallIntegerField()
    skipped_count = models.BigIntegerField()
    paused_at = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)  # noqa: DJ001
    declared_at = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."cron_jobs"'
        permissions = [
            ("pause_cronjob", "Can pause and resume cron schedules"),
            ("run_cronjob", "Can run cron schedules now"),
        ]
        verbose_name = _l("cron schedule")
        verbose_name_plural = _l("cron schedules")

    def __str__(self) -> str:
        return self.name


class RuntimeInstance(ReadOnlyModel):
    """A live process: a supervisor, or a child that names its supervisor."""

    written_by = "worker processes write their own rows."

    name = models.TextField(primary_key=True)
    supervisor = models.TextField(null=True)  # noqa: DJ001
    hostname = models.TextField()
    pid = models.IntegerField()
    version = models.TextField()
    queues = TextArrayField()
    concurrency = models.IntegerField()
    running_count = models.IntegerField()
    draining = models.BooleanField()
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."runtime_instances"'
        verbose_name = _l("worker")
        verbose_name_plural = _l("workers")

    def __str__(self) -> str:
        return self.name


class LeaderLease(ReadOnlyModel):
    """A duty of the whole installation and who does it now."""

    written_by = "workers take and give up the duties."

    duty = models.TextField(primary_key=True)
    holder = models.TextField(null=True)  # noqa: DJ001
    epoch = models.BigIntegerField()
    expires_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."leaders"'
        verbose_name = _l("leader duty")
        verbose_name_plural = _l("leader duties")

    def __str__(self) -> str:
        return self.duty


class JobKind(ReadOnlyModel):
    """A kind of job that was seen: the catalogue behind the filters of the admin."""

    written_by = "workers write the catalogue."

    kind = models.TextField(primary_key=True)
    queue = models.TextField(null=True)  # noqa: DJ001
    last_seen_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."job_kinds"'
        verbose_name = _l("job kind")
        verbose_name_plural = _l("job kinds")

    def __str__(self) -> str:
        return self.kind


class QueueStats(ReadOnlyModel):
    """The runs of one queue and kind that ended in one minute; kept for a week.

    The newest are folded in by the leader every ten seconds.
    """

    written_by = "workers count ended runs."

    pk = models.CompositePrimaryKey("minute", "queue", "kind")
    minute = models.DateTimeField()
    queue = models.TextField()
    kind = models.TextField()
    completed_count = models.BigIntegerField()
    retried_count = models.BigIntegerField()
    failed_count = models.BigIntegerField()
    cancelled_count = models.BigIntegerField()
    wait_seconds = models.FloatField()
    run_seconds = models.FloatField()
    wait_histogram = HistogramField(null=True)
    run_histogram = HistogramField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."queue_stats"'
        verbose_name = _l("ended runs of a minute")
        verbose_name_plural = _l("ended runs per minute")

    def __str__(self) -> str:
        return f"{self.kind} in {self.queue} at {self.minute}"
