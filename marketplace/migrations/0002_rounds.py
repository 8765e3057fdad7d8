from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("marketplace", "0001_initial")]

    operations = [
        migrations.AddField("roundrow", "certificate", models.JSONField(null=True)),
        migrations.AddField("traderow", "round_id", models.UUIDField(null=True)),
        migrations.AddIndex(
            "traderow", models.Index(fields=["round_id"], name="trade_by_round")
        ),
    ]
