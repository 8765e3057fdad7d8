from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0004_division")]

    operations = [
        migrations.AddField("offerrow", "by_demand", models.JSONField(null=True)),
        migrations.AddField("offerrow", "chosen", models.JSONField(null=True)),
        migrations.AddField("offerrow", "succeeded_by", models.UUIDField(null=True)),
    ]
