from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0004_rights")]

    operations: list[object] = []
