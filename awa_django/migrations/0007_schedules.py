from __future__ import annotations

from django.db import migrations, models

from awa_django.migrations._run_sql import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("awa", "0006_stats_deltas")]
    operations = [
        RunSQLFile("0007_schedules"),
        # State only, as the model is unmanaged.
        migrations.AddField(
            "CronJob", "missed", models.TextField(default="coalesce"), preserve_default=False
        ),
        migrations.AddField(
            "CronJob", "catch_up_limit", models.SmallIntegerField(default=100), preserve_default=False
        ),
        migrations.AddField(
            "CronJob", "skipped_count", models.BigIntegerField(default=0), preserve_default=False
        ),
        migrations.AddField("CronJob", "paused_at", models.DateTimeField(null=True)),
        migrations.AddField("CronJob", "paused_by", models.TextField(null=True)),
        migrations.AddField("CronJob", "declared_at", models.DateTimeField(null=True)),
        migrations.AlterModelOptions(
            "CronJob",
            {
                "base_manager_name": "objects",
                "default_permissions": ("view",),
                "managed": False,
                "permissions": [
                    ("pause_cronjob", "Can pause and resume cron schedules"),
                    ("run_cronjob", "Can run cron schedules now"),
                ],
                "verbose_name": "cron schedule",
                "verbose_name_plural": "cron schedules",
            },
        ),
    ]
