from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """State only, as the model is unmanaged; the permission is made after it."""

    dependencies = [("awa", "0010_totals")]
    operations = [
        migrations.AlterModelOptions(
            "Job",
            {
                "base_manager_name": "objects",
                "default_permissions": ("view",),
                "managed": False,
                "permissions": [
                    ("retry_job", "Can retry failed and cancelled jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("run_job_now", "Can run deferred jobs now"),
                    ("reschedule_job", "Can reschedule jobs"),
                    ("set_job_priority", "Can set the priority of jobs"),
                    ("move_job", "Can move jobs to another queue"),
                    ("delete_job", "Can delete jobs"),
                    ("edit_job_args", "Can edit the arguments of jobs that do not run"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "all jobs",
            },
        ),
    ]
