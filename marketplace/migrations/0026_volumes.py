from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('marketplace', '0025_outputs_failed'),
    ]

    operations = [
        migrations.AddField(
            model_name='bidrow',
            name='volumes',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='blobuserow',
            name='volume_id',
            field=models.UUIDField(db_index=True, null=True),
        ),
        migrations.AddField(
            model_name='leaserow',
            name='volumes',
            field=models.JSONField(default=list),
        ),
        migrations.CreateModel(
            name='VolumeRow',
            fields=[
                ('volume_id', models.UUIDField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('subscriber_id', models.UUIDField()),
                ('account_id', models.UUIDField()),
                ('cost_centre', models.CharField(max_length=60)),
                ('name', models.CharField(max_length=64)),
                ('user_id', models.UUIDField(null=True)),
                ('quota_bytes', models.BigIntegerField()),
                ('nanos_per_gib_month', models.BigIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('number', models.PositiveIntegerField(default=0)),
                ('manifest', models.CharField(default='', max_length=64)),
                ('files', models.PositiveIntegerField(default=0)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('versions', models.JSONField(default=list)),
                ('writer_id', models.UUIDField(null=True)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('noticed_at', models.DateTimeField(null=True)),
                ('unpaid_at', models.DateTimeField(null=True)),
                ('read_only_at', models.DateTimeField(null=True)),
                ('expired_because', models.CharField(default='', max_length=12)),
                ('removed_at', models.DateTimeField(null=True)),
                ('is_removed', models.BooleanField(default=False)),
                ('charged_until', models.DateTimeField(null=True)),
                ('charged_nanos', models.BigIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['tenant_id', 'name'], name='volume_by_tenant')],
            },
        ),
    ]
