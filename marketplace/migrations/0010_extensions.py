from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0007_chains")]

    operations = [
        migrations.AddField(
            model_name="leaserow", name="extension", field=models.JSONField(null=True)
        ),
    ]
