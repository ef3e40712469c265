"""The jobs: the two physical tables, and the view over both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn

from django.db import NotSupportedError, models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _l

from awa_django.conf import get_settings
from awa_django.models.fields import (
    BitMaskField,
    JobStateField,
    JSONBArrayField,
    JSONBField,
    TextArrayField,
    UniqueKeyField,
)
from awa_django.models.managers import ReadOnlyManager, ViewManager, refuse_id

# An INSERT says DEFAULT for a column that was not given, and reads it back; the value here is never sent.
FROM_DATABASE = Value(None)


class ReadOnlyModel(models.Model):
    """Base of the models whose rows are written by something else than the ORM."""

    # What to use instead, as the end of the sentence that refuses a write.
    written_by: ClassVar[str]

    objects = ReadOnlyManager()

    class Meta:
        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)

    def save(self, *_: Any, **__: Any) -> NoReturn:
        raise NotSupportedError(f"{type(self).__name__}.save() is refused: {self.written_by}")

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise NotSupportedError(f"{type(self).__name__}.delete() is refused: {self.written_by}")


class JobColumns(models.Model):
    """The columns of both tables and the view.

    All but ``kind`` are filled by the database where they are not given: defaults, and for the state
    the view's trigger.
    """

    id = models.BigAutoField(_l("ID"), primary_key=True)
    kind = models.TextField()
    queue = models.TextField(db_default=FROM_DATABASE)
    args = JSONBField(db_default=FROM_DATABASE)
    state = JobStateField(db_default=FROM_DATABASE)
    priority = models.SmallIntegerField(db_default=FROM_DATABASE)
    attempt = models.SmallIntegerField(db_default=FROM_DATABASE)
    max_attempts = models.SmallIntegerField(db_default=FROM_DATABASE)
    run_at = models.DateTimeField(db_default=FROM_DATABASE)
    heartbeat_at = models.DateTimeField(null=True, db_default=FROM_DATABASE)
    deadline_at = models.DateTimeField(null=True, db_default=FROM_DATABASE)
    attempted_at = models.DateTimeField(null=True, db_default=FROM_DATABASE)
    finalized_at = models.DateTimeField(null=True, db_default=FROM_DATABASE)
    created_at = models.DateTimeField(db_default=FROM_DATABASE)
    errors = JSONBArrayField(db_default=FROM_DATABASE)
    metadata = JSONBField(db_default=FROM_DATABASE)
    tags = TextArrayField(db_default=FROM_DATABASE)
    unique_key = UniqueKeyField(null=True, db_default=FROM_DATABASE)
    unique_states = BitMaskField(null=True, db_default=FROM_DATABASE)
    run_lease = models.BigIntegerField(db_default=FROM_DATABASE)
    progress = JSONBField(null=True, db_default=FROM_DATABASE)
    result = JSONBField(null=True, db_default=FROM_DATABASE)
    worker = models.TextField(null=True, db_default=FROM_DATABASE)  # noqa: DJ001

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"


class HotJob(JobColumns, ReadOnlyModel):
    """A job that can run now, runs, or has ended: a row of ``awa.jobs_hot``."""

    written_by = (
        "awa.jobs_hot is written by workers and by awa_django.operations (cancel, retry, reschedule, "
        "set_priority, move_queue, delete). For other columns use Job.objects.filter(...).update()."
    )

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."jobs_hot"'
        verbose_name = _l("hot job")
        verbose_name_plural = _l("hot jobs")


class DeferredJob(JobColumns, ReadOnlyModel):
    """A job for later, scheduled or waiting for a retry: a row of ``awa.scheduled_jobs``."""

    written_by = (
        "awa.scheduled_jobs is written by workers and by awa_django.operations (cancel, run_now, reschedule, "
        "set_priority, move_queue, delete). For other columns use Job.objects.filter(...).update()."
    )

    class Meta(ReadOnlyModel.Meta):
        db_table = '"awa"."scheduled_jobs"'
        verbose_name = _l("deferred job")
        verbose_name_plural = _l("deferred jobs")


class Job(JobColumns):
    """A job wherever it is: a row of the view ``awa.jobs``.

    ``create()`` leaves what is not given to the database (the state follows from ``run_at``) and
    reads it back. ``update()``, ``delete()`` and ``save(update_fields=...)`` are compare-and-set:
    a job that has changed since it was read by the statement is left alone and not counted.
    """

    objects = ViewManager()

    class Meta:
        managed = False
        db_table = '"awa"."jobs"'
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions = [
            ("retry_job", "Can retry failed and cancelled jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("run_job_now", "Can run deferred jobs now"),
            ("reschedule_job", "Can reschedule jobs"),
            ("set_job_priority", "Can set the priority of jobs"),
            ("move_job", "Can move jobs to another queue"),
            ("delete_job", "Can delete jobs"),
            ("edit_job_args", "Can edit the arguments of jobs that do not run"),
        ]
        verbose_name = _l("job")
        verbose_name_plural = _l("all jobs")

    def save(
        self,
        *,
        force_insert: bool | tuple[models.base.ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Insert a new job, or write ``update_fields`` of one that exists.

        Raises: NotSupportedError for a plain save of an existing job, which would write back every
        column as it was when the job was read.
        """
        if self._state.adding or force_insert:
            if self.pk:
                refuse_id(self.pk)
            if update_fields is not None:
                raise NotSupportedError("a new job is saved as a whole: leave update_fields out")
        elif update_fields is None:
            raise NotSupportedError(
                f"Job.save() of existing job {self.pk} is refused: it would write back every column as it "
                "was read. Name the columns, save(update_fields=[...]), or use awa_django.operations."
            )
        super().save(
            force_insert=self._state.adding or force_insert,
            force_update=force_update,
            using=using or self._state.db or get_settings().database,
            update_fields=update_fields,
        )

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Delete the job where it is; the count is 0 when it has changed meanwhile."""
        return super().delete(
            using=using or self._state.db or get_settings().database, keep_parents=keep_parents
        )
