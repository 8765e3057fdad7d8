from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Let an engine's loop say how its rounds are doing that are worked out beside it."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("site", "0006_kernels")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.AddField(
            model_name="looprun",
            name="rounds",
            field=models.CharField(default="", max_length=200),
        ),
    ]
