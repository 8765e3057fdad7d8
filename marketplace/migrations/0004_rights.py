from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0003_quotas")]

    operations = [
        migrations.AddField("leaserow", "reclaim_schedule", models.JSONField(default=list)),
    ]
