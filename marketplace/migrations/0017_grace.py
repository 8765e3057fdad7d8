from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0016_moves")]

    operations = [
        migrations.AddField("leaserow", "grace_seconds", models.PositiveIntegerField(default=15)),
        migrations.AddField(
            "leasesharerow", "grace_seconds", models.PositiveIntegerField(default=15)
        ),
    ]
