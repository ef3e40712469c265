from __future__ import annotations

from django.db import migrations

from awa_django.migrations._run_sql import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("awa", "0009_histograms")]
    operations = [RunSQLFile("0010_totals")]
