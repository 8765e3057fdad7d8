"""What agents said lately, of all hosts: whoever watches them asks for it again and again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("metering", "0001_metering")]

    operations = [
        migrations.AddIndex(
            model_name="healthevent",
            index=models.Index(fields=["received_at"], name="health_by_receipt"),
        ),
    ]
