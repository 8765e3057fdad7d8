"""What is mailed to people once a day, and when."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0027_receivables'),
    ]

    operations = [
        migrations.CreateModel(
            name='DigestTimeRow',
            fields=[
                ('user_id', models.UUIDField(primary_key=True, serialize=False)),
                ('hour', models.PositiveSmallIntegerField()),
                ('zone', models.CharField(max_length=64)),
                ('changed_at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='noticewish',
            name='daily',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name='DigestItemRow',
            fields=[
                ('item_id', models.UUIDField(primary_key=True, serialize=False)),
                ('user_id', models.UUIDField()),
                ('tenant_id', models.UUIDField()),
                ('topic', models.CharField(max_length=16)),
                ('title', models.CharField(max_length=200)),
                ('body', models.TextField()),
                ('link', models.CharField(max_length=400)),
                ('at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(db_index=True)),
                ('delivery_id', models.UUIDField(null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('delivery_id', None)), fields=['due_at', 'user_id'], name='ledger_digest_waiting')],
            },
        ),
    ]
