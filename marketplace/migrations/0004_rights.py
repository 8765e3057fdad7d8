from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0003_quotas")]

    operations = [
        migrations.AddField("leaserow", "reclaim_schedule", models.JSONField(default=list)),
        migrations.AddField(
            "leaserow", "resale_state", models.CharField(max_length=16, default="")
        ),
        migrations.AddField("leaserow", "resale", models.JSONField(null=True)),
        migrations.AddField("leaserow", "resold_lease_id", models.UUIDField(null=True)),
    ]
