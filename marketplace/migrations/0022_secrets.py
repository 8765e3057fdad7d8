from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0021_inputs")]

    operations = [
        migrations.CreateModel(
            name="SecretRow",
            fields=[
                ("secret_id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("name", models.CharField(max_length=64)),
                ("version", models.PositiveIntegerField()),
                ("user_id", models.UUIDField(null=True)),
                ("set_at", models.DateTimeField()),
                ("delivered_at", models.DateTimeField(null=True)),
                ("delivered_lease_id", models.UUIDField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "name"], name="secret_by_tenant")],
            },
        ),
        migrations.CreateModel(
            name="SecretValueRow",
            fields=[
                ("secret_id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField(db_index=True)),
                ("name", models.CharField(max_length=64)),
                ("version", models.PositiveIntegerField()),
                ("master", models.CharField(db_index=True, max_length=16)),
                ("key", models.BinaryField()),
                ("value", models.BinaryField()),
            ],
        ),
    ]
