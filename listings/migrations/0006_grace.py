from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0005_by_demand")]

    operations = [
        migrations.AddField("offerrow", "grace_seconds", models.PositiveIntegerField(default=15)),
    ]
