from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0022_secrets")]

    operations = [
        migrations.AddField("bidrow", "secrets", models.JSONField(default=list)),
        migrations.AddField("bidrow", "secret_variables", models.JSONField(default=list)),
    ]
