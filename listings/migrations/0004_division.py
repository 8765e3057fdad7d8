from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("listings", "0003_cleaning")]

    operations = [
        migrations.AddField("offerrow", "division", models.JSONField(null=True)),
    ]
