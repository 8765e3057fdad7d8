from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The market's tape."""

    initial = True

    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.CreateModel(
            name="TapeRow",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("text", models.CharField(max_length=200)),
                ("gpu_model", models.CharField(max_length=64)),
                ("price_nanos_per_gpu_hour", models.BigIntegerField(null=True)),
                ("currency", models.CharField(max_length=3)),
            ],
        ),
    ]
