from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0024_dispute_statements'),
    ]

    operations = [
        migrations.AddField(
            model_name='usagechargerow',
            name='shares',
            field=models.TextField(default=''),
        ),
    ]
