from django.db import migrations, models


class Migration(migrations.Migration):
    """A lease's price may change by consent of both its sides."""

    dependencies = [
        ("metering", "0010_measures"),
    ]

    operations = [
        migrations.AddField(
            model_name="meterrow",
            name="later_prices",
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
