from __future__ import annotations

from django.db import migrations

from awa_django.migrations._run_sql import RunSQLFile


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [RunSQLFile("0001_jobs")]
