from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0010_append_one'),
    ]

    operations = [
        migrations.CreateModel(
            name='StorageChargeRow',
            fields=[
                ('entry_id', models.UUIDField(primary_key=True, serialize=False)),
                ('position', models.BigIntegerField(db_index=True)),
                ('period', models.CharField(max_length=7)),
                ('account_id', models.UUIDField()),
                ('tenant_id', models.UUIDField()),
                ('subscriber_id', models.UUIDField(null=True)),
                ('volume_id', models.UUIDField()),
                ('title', models.CharField(max_length=200)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('byte_seconds', models.BigIntegerField()),
                ('nanos_per_gib_month', models.BigIntegerField()),
                ('charged_nanos', models.BigIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('cost_centre', models.CharField(max_length=60)),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['period', 'position'], name='ledger_storage_by_period')],
            },
        ),
    ]
