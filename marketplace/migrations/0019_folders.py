from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0018_work_began")]

    operations = [
        migrations.CreateModel(
            name="FolderRow",
            fields=[
                ("folder_id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("manifest", models.CharField(max_length=64)),
                ("title", models.CharField(max_length=120)),
                ("files", models.PositiveIntegerField()),
                ("size_bytes", models.BigIntegerField()),
                ("user_id", models.UUIDField(null=True)),
                ("lease_id", models.UUIDField(db_index=True, null=True)),
                ("host_id", models.UUIDField(null=True)),
                ("exit_code", models.IntegerField(null=True)),
                ("kept_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "-kept_at"], name="folder_by_tenant")
                ],
            },
        ),
        migrations.CreateModel(
            name="BlobRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("sha256", models.CharField(max_length=64)),
                ("size_bytes", models.PositiveIntegerField()),
                ("asked_at", models.DateTimeField(db_index=True)),
                ("stored_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["tenant_id", "sha256"], name="blob_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="BlobUseRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("folder_id", models.UUIDField()),
                ("blob_id", models.BigIntegerField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["folder_id", "blob_id"], name="blob_use_once")
                ],
            },
        ),
    ]
