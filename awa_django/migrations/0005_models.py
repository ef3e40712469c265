from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import Value

from awa_django.models import fields


def job_columns() -> list[tuple[str, Any]]:
    """The columns that both tables and the view have."""
    given: dict[str, Any] = {"db_default": Value(None)}
    nullable: dict[str, Any] = {**given, "null": True}
    return [
        ("id", models.BigAutoField(primary_key=True, serialize=False)),
        ("kind", models.TextField()),
        ("queue", models.TextField(**given)),
        ("args", fields.JSONBField(**given)),
        ("state", fields.JobStateField(**given)),
        ("priority", models.SmallIntegerField(**given)),
        ("attempt", models.SmallIntegerField(**given)),
        ("max_attempts", models.SmallIntegerField(**given)),
        ("run_at", models.DateTimeField(**given)),
        ("heartbeat_at", models.DateTimeField(**nullable)),
        ("deadline_at", models.DateTimeField(**nullable)),
        ("attempted_at", models.DateTimeField(**nullable)),
        ("finalized_at", models.DateTimeField(**nullable)),
        ("created_at", models.DateTimeField(**given)),
        ("errors", fields.JSONBArrayField(**given)),
        ("metadata", fields.JSONBField(**given)),
        ("tags", fields.TextArrayField(**given)),
        ("unique_key", fields.UniqueKeyField(**nullable)),
        ("unique_states", fields.BitMaskField(**nullable)),
        ("run_lease", models.BigIntegerField(**given)),
        ("progress", fields.JSONBField(**nullable)),
        ("result", fields.JSONBField(**nullable)),
        ("worker", models.TextField(**nullable)),
    ]


def options(table: str, **others: object) -> dict[str, object]:
    return {
        "managed": False,
        "db_table": f'"awa"."{table}"',
        "base_manager_name": "objects",
        "default_permissions": ("view",),
        **others,
    }


class Migration(migrations.Migration):
    """State only: the tables are those of the earlier files."""

    dependencies = [("awa", "0004_view")]
    operations = [
        migrations.CreateModel(
            "HotJob",
            job_columns(),
            options("jobs_hot", verbose_name="hot job", verbose_name_plural="hot jobs"),
        ),
        migrations.CreateModel(
            "DeferredJob",
            job_columns(),
            options("scheduled_jobs", verbose_name="deferred job", verbose_name_plural="deferred jobs"),
        ),
        migrations.CreateModel(
            "Job",
            job_columns(),
            options(
                "jobs",
                verbose_name="job",
                verbose_name_plural="all jobs",
                permissions=[
                    ("retry_job", "Can retry failed and cancelled jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("run_job_now", "Can run deferred jobs now"),
                    ("reschedule_job", "Can reschedule jobs"),
                    ("set_job_priority", "Can set the priority of jobs"),
                    ("move_job", "Can move jobs to another queue"),
                    ("delete_job", "Can delete jobs"),
                ],
            ),
        ),
        migrations.CreateModel(
            "UniqueClaim",
            [
                ("unique_key", fields.UniqueKeyField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
            ],
            options("job_unique_claims", verbose_name="unique claim", verbose_name_plural="unique claims"),
        ),
        migrations.CreateModel(
            "QueueMeta",
            [
                ("queue", models.TextField(primary_key=True, serialize=False)),
                ("paused", models.BooleanField()),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_by", models.TextField(null=True)),
                ("paused_until", models.DateTimeField(null=True)),
            ],
            options(
                "queue_meta",
                verbose_name="queue",
                verbose_name_plural="queues",
                permissions=[("pause_queue", "Can pause and resume queues")],
            ),
        ),
        migrations.CreateModel(
            "CronJob",
            [
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("cron_expr", models.TextField()),
                ("timezone", models.TextField()),
                ("kind", models.TextField()),
                ("queue", models.TextField()),
                ("args", fields.JSONBField()),
                ("priority", models.SmallIntegerField()),
                ("max_attempts", models.SmallIntegerField()),
                ("tags", fields.TextArrayField()),
                ("metadata", fields.JSONBField()),
                ("last_enqueued_at", models.DateTimeField(null=True)),
                ("paused", models.BooleanField()),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options("cron_jobs", verbose_name="cron schedule", verbose_name_plural="cron schedules"),
        ),
        migrations.CreateModel(
            "RuntimeInstance",
            [
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("supervisor", models.TextField(null=True)),
                ("hostname", models.TextField()),
                ("pid", models.IntegerField()),
                ("version", models.TextField()),
                ("queues", fields.TextArrayField()),
                ("concurrency", models.IntegerField()),
                ("running_count", models.IntegerField()),
                ("draining", models.BooleanField()),
                ("started_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField()),
            ],
            options("runtime_instances", verbose_name="worker", verbose_name_plural="workers"),
        ),
        migrations.CreateModel(
            "LeaderLease",
            [
                ("duty", models.TextField(primary_key=True, serialize=False)),
                ("holder", models.TextField(null=True)),
                ("epoch", models.BigIntegerField()),
                ("expires_at", models.DateTimeField()),
            ],
            options("leaders", verbose_name="leader duty", verbose_name_plural="leader duties"),
        ),
        migrations.CreateModel(
            "JobKind",
            [
                ("kind", models.TextField(primary_key=True, serialize=False)),
                ("queue", models.TextField(null=True)),
                ("last_seen_at", models.DateTimeField()),
            ],
            options("job_kinds", verbose_name="job kind", verbose_name_plural="job kinds"),
        ),
    ]
