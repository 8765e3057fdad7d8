from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0023_secrets_of_bids")]

    operations = [
        migrations.CreateModel(
            name="LogRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("lease_id", models.UUIDField()),
                ("host_id", models.UUIDField()),
                ("attempt", models.PositiveIntegerField()),
                ("stream", models.CharField(max_length=16)),
                ("tenant_id", models.UUIDField()),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("dropped_bytes", models.BigIntegerField(default=0)),
                ("is_complete", models.BooleanField(default=False)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("sha256", models.CharField(default="", max_length=64)),
                ("kept_until", models.DateTimeField(db_index=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["lease_id", "host_id", "attempt", "stream"], name="log_once"
                    )
                ],
            },
        ),
    ]
