from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0005_demand")]

    operations = [
        migrations.CreateModel(
            name="SnapshotRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("market", models.CharField(max_length=64)),
                ("form", models.CharField(max_length=32)),
                ("position", models.BigIntegerField()),
                ("version", models.BigIntegerField()),
                ("checksum", models.BinaryField()),
                ("body", models.BinaryField()),
                ("taken_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["market", "form", "-id"], name="snapshot_newest")
                ],
            },
        ),
    ]
