from __future__ import annotations

from django.db import migrations, models

import awa_django.models.fields
from awa_django.migrations._run_sql import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("awa", "0008_replica_identity")]
    operations = [
        RunSQLFile("0009_histograms"),
        # State only, as the model is unmanaged.
        migrations.CreateModel(
            "QueueStats",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "minute",
                        "queue",
                        "kind",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("minute", models.DateTimeField()),
                ("queue", models.TextField()),
                ("kind", models.TextField()),
                ("completed_count", models.BigIntegerField()),
                ("retried_count", models.BigIntegerField()),
                ("failed_count", models.BigIntegerField()),
                ("cancelled_count", models.BigIntegerField()),
                ("wait_seconds", models.FloatField()),
                ("run_seconds", models.FloatField()),
                ("wait_histogram", awa_django.models.fields.HistogramField(null=True)),
                ("run_histogram", awa_django.models.fields.HistogramField(null=True)),
            ],
            {
                "managed": False,
                "db_table": '"awa"."queue_stats"',
                "base_manager_name": "objects",
                "default_permissions": ("view",),
                "verbose_name": "ended runs of a minute",
                "verbose_name_plural": "ended runs per minute",
            },
        ),
    ]
