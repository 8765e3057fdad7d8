from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0001_listings")]

    operations = [
        migrations.AddField("offerrow", "reclaim_steps", models.JSONField(default=list)),
    ]
