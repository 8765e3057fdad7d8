from django.db import migrations, models

BEGAN = "UPDATE marketplace_leaserow SET work_began_at = activated_at WHERE activated_at IS NOT NULL"
"""Of a lease that started on some hosts only, the rows do not know it: it is known once all run."""


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0017_grace")]

    operations = [
        migrations.AddField("leaserow", "work_began_at", models.DateTimeField(null=True)),
        migrations.RunSQL(BEGAN, migrations.RunSQL.noop),
    ]
