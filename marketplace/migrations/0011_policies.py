from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("marketplace", "0010_extensions"),
    ]

    operations = [
        migrations.CreateModel(
            name="PolicyNodeRow",
            fields=[
                ("key", models.CharField(max_length=110, primary_key=True, serialize=False)),
                ("market", models.CharField(max_length=64)),
                ("node", models.CharField(max_length=40)),
                ("is_cohort", models.BooleanField()),
                ("cohort", models.CharField(max_length=40, null=True)),
                ("tenant_id", models.UUIDField(null=True)),
                ("placed_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="PolicyRow",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("market", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=40)),
                ("about", models.CharField(max_length=64)),
                ("tenant_id", models.UUIDField(null=True)),
                ("policy", models.JSONField()),
                ("actor", models.CharField(max_length=120)),
                ("why", models.TextField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["market", "-position"], name="policy_by_market"),
                    models.Index(fields=["about"], name="policy_about"),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaRequestRow",
            fields=[
                ("request_id", models.UUIDField(primary_key=True, serialize=False)),
                ("market", models.CharField(max_length=64)),
                ("tenant_id", models.UUIDField(db_index=True)),
                ("subscriber_id", models.UUIDField()),
                ("user_id", models.UUIDField(null=True)),
                ("gpu_class", models.CharField(max_length=40)),
                ("nominal", models.PositiveIntegerField()),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("why", models.TextField()),
                ("state", models.CharField(max_length=10)),
                ("expires_at", models.DateTimeField()),
                ("answer", models.TextField(default="")),
                ("token_id", models.UUIDField(null=True)),
                ("token_expires_at", models.DateTimeField(null=True)),
                ("asked_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["market", "-asked_at"], name="quota_request_newest")
                ],
            },
        ),
    ]
