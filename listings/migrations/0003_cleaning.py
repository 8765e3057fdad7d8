from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0002_reclaim_steps")]

    operations = [
        migrations.AddField("offerrow", "cleaning_seconds", models.PositiveIntegerField(default=0)),
    ]
