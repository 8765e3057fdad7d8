"""Tunnels of agents, and the keys by which leased work proves itself."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("metering", "0004_heard_since")]

    operations = [
        migrations.CreateModel(
            name="AgentTunnel",
            fields=[
                ("host_id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("holder", models.UUIDField()),
                ("address", models.CharField(max_length=300)),
                ("allowed", models.CharField(max_length=8)),
                ("connected_at", models.DateTimeField()),
                ("connections", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="LeaseDoor",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "lease_id",
                        "host_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("lease_id", models.UUIDField()),
                ("host_id", models.UUIDField()),
                ("host_key", models.CharField(max_length=500)),
                ("told_at", models.DateTimeField()),
            ],
        ),
    ]
