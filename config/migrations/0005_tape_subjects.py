from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

HERE_ALREADY = """
INSERT INTO site_tapesubjectrow (subject_id, gpus, gpu_model)
SELECT lease_id, left(gpus || ' × ' || gpu_model, 80), left(gpu_model, 64)
FROM marketplace_leaserow WHERE state <> 'closed' AND price_nanos_per_gpu_hour > 0
ON CONFLICT DO NOTHING
"""
"""Leases that run while the site is upgraded: the tape will tell of their end."""


class Migration(migrations.Migration):
    """Let lines of the tape say what they are about, and where to read on."""

    dependencies: ClassVar[list[tuple[str, str]]] = [
        ("site", "0004_signing_key"),
        ("marketplace", "0017_grace"),
    ]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.AddField(
            model_name="taperow", name="round_id", field=models.UUIDField(null=True)
        ),
        migrations.CreateModel(
            name="TapeSubjectRow",
            fields=[
                ("subject_id", models.UUIDField(primary_key=True, serialize=False)),
                ("gpus", models.CharField(max_length=80)),
                ("gpu_model", models.CharField(max_length=64)),
            ],
        ),
        migrations.RunSQL(HERE_ALREADY, migrations.RunSQL.noop),
    ]
