from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("marketplace", "0027_idle_time"),
    ]

    operations = [
        migrations.AddField("bidrow", "fetch", models.CharField(default="", max_length=1024)),
        migrations.AddField("bidrow", "fetch_secret", models.CharField(default="", max_length=64)),
        migrations.AddField("leaserow", "fetch", models.CharField(default="", max_length=1024)),
    ]
