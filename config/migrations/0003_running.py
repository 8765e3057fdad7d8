from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

PROBE = """
CREATE UNLOGGED TABLE site_probe (at timestamptz NOT NULL, filler bytea NOT NULL);
ALTER TABLE site_probe ALTER COLUMN filler SET STORAGE EXTERNAL;
"""


class Migration(migrations.Migration):
    """How loops are doing, which versions wrote, and where it is tried whether writing works."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("site", "0002_cache")]

    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.CreateModel(
            name="LoopRun",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("process", models.CharField(max_length=200)),
                ("held_since", models.DateTimeField()),
                ("passed_at", models.DateTimeField(null=True)),
                ("took_ms", models.IntegerField(default=0)),
                ("every_ms", models.IntegerField(default=0)),
                ("did", models.BigIntegerField(default=0)),
                ("failures", models.IntegerField(default=0)),
                ("error", models.CharField(default="", max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="Wrote",
            fields=[
                ("version", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("kinds", models.JSONField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL(PROBE, "DROP TABLE site_probe"),
    ]
