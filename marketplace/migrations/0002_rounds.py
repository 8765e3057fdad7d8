from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0001_initial")]

    operations: list[object] = []
