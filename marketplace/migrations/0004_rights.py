from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0003_quotas")]

    operations: list[object] = []
