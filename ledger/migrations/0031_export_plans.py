from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0030_self_billing'),
    ]

    operations = [
        migrations.CreateModel(
            name='ExportPlanRow',
            fields=[
                ('plan_id', models.UUIDField(primary_key=True, serialize=False)),
                ('every', models.CharField(max_length=8)),
                ('formats', models.JSONField()),
                ('folder', models.CharField(max_length=60)),
                ('by_user', models.UUIDField()),
                ('at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('due', models.CharField(max_length=40)),
                ('period', models.CharField(max_length=7)),
                ('position', models.BigIntegerField(null=True)),
                ('brought', models.JSONField(default=dict)),
                ('brought_at', models.DateTimeField(null=True)),
                ('target', models.CharField(max_length=400)),
                ('words', models.CharField(max_length=300)),
                ('failed_at', models.DateTimeField(null=True)),
            ],
        ),
    ]
