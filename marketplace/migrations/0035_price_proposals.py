"""Prices proposed for leases, and what was agreed of them."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('marketplace', '0034_comparisons'),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceProposalRow',
            fields=[
                ('proposal_id', models.UUIDField(primary_key=True, serialize=False)),
                ('lease_id', models.UUIDField(db_index=True)),
                ('tenant_id', models.UUIDField()),
                ('of', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=None)),
                ('agreed_by', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=None)),
                ('before_nanos', models.BigIntegerField()),
                ('price_nanos', models.BigIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('since', models.DateTimeField()),
                ('answer_by', models.DateTimeField()),
                ('why', models.CharField(max_length=400)),
                ('state', models.CharField(max_length=12)),
                ('declined_why', models.CharField(default='', max_length=400)),
                ('proposed_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='leaserow',
            name='later_prices',
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
