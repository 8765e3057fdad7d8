"""Use that came after its windows were closed, what came of it, and when the market was up."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("metering", "0002_health_by_receipt")]

    operations = [
        migrations.CreateModel(
            name="LateUse",
            fields=[
                ("lease_id", models.UUIDField(primary_key=True, serialize=False)),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                ("arrived_at", models.DateTimeField()),
                ("arrivals", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Beat",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OutageRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=20)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="CorrectionRow",
            fields=[
                ("key", models.CharField(max_length=110, primary_key=True, serialize=False)),
                ("lease_id", models.UUIDField(db_index=True)),
                ("tenant_id", models.UUIDField()),
                ("owner_id", models.UUIDField()),
                ("number", models.PositiveIntegerField()),
                ("reason", models.CharField(max_length=16)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("granted_ms", models.BigIntegerField()),
                ("occupied_ms", models.BigIntegerField(null=True)),
                ("busy_ms", models.BigIntegerField(null=True)),
                ("gap_ms", models.BigIntegerField()),
                ("is_captured", models.BooleanField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["is_captured", "at"], name="correction_by_captured")
                ],
            },
        ),
    ]
