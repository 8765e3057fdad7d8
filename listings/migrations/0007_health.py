"""Whether a host is heard, and which of its GPUs have a fault."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0006_grace")]

    operations = [
        migrations.AddField(
            model_name="hostrow",
            name="silent_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="hostrow",
            name="unfit",
            field=models.JSONField(default=dict),
        ),
    ]
