from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Let an engine's loop say how far its process is with compiled kernels."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("site", "0005_tape_subjects")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.AddField(
            model_name="looprun",
            name="kernels",
            field=models.CharField(default="", max_length=200),
        ),
    ]
