from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Message",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("job_id", models.BigIntegerField(unique=True)),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("receipt", "Receipt"),
                            ("reminder", "Reminder"),
                            ("newsletter", "Newsletter"),
                            ("warehouse", "Warehouse"),
                        ],
                        max_length=20,
                    ),
                ),
                ("recipient", models.CharField(max_length=254)),
                ("text", models.TextField()),
                ("sent_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.EmailField(max_length=254)),
                (
                    "product",
                    models.CharField(
                        choices=[
                            ("tea", "Tea, 250 g"),
                            ("coffee", "Coffee, 500 g"),
                            ("chocolate", "Chocolate, one bar"),
                        ],
                        default="tea",
                        max_length=20,
                    ),
                ),
                ("amount", models.DecimalField(decimal_places=2, max_digits=8)),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
                ("paid_at", models.DateTimeField(editable=False, null=True)),
                ("points", models.IntegerField(default=0, editable=False)),
                ("receipt_job_id", models.BigIntegerField(editable=False, null=True)),
                ("payment_job_id", models.BigIntegerField(editable=False, null=True)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
    ]
