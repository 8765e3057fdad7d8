from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0004_rights")]

    operations = [
        migrations.AddField(
            model_name="bidrow",
            name="good_till",
            field=models.CharField(default="good-till-deadline", max_length=20),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="good_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="gpus_min",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="duration_min_seconds",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="budget_nanos",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="auto_extend_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="ended_because",
            field=models.CharField(default="", max_length=12),
        ),
    ]
