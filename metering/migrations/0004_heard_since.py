"""Since when an agent has been heard without a pause."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("metering", "0003_corrections")]

    operations = [
        migrations.AddField(
            model_name="agentcontact",
            name="heard_since",
            field=models.DateTimeField(null=True),
        ),
    ]
