from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0002_rounds")]

    operations: list[object] = []
