from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0006_snapshots")]

    operations = [
        migrations.AddField(
            model_name="bidrow", name="repeat_until", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="bidrow", name="resume", field=models.BooleanField(default=False)
        ),
        migrations.AddField(
            model_name="bidrow",
            name="chain_id",
            field=models.UUIDField(db_index=True, null=True),
        ),
        migrations.AddField(
            model_name="bidrow",
            name="chain_number",
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddField(
            model_name="bidrow", name="continues_id", field=models.UUIDField(null=True)
        ),
        migrations.AddField(
            model_name="bidrow", name="resumes_lease_id", field=models.UUIDField(null=True)
        ),
        migrations.AddField(
            model_name="bidrow",
            name="chain_ended",
            field=models.CharField(default="", max_length=64),
        ),
    ]
