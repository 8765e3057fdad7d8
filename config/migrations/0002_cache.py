from django.db import migrations

MADE = """
CREATE TABLE IF NOT EXISTS site_cache (
    cache_key varchar(255) PRIMARY KEY,
    value text NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS site_cache_expires ON site_cache (expires);
"""


class Migration(migrations.Migration):
    """Where log-ins are counted, as Django's cache in a database wants it."""

    dependencies = [("site", "0001_tape")]

    operations = [migrations.RunSQL(MADE, "DROP TABLE site_cache")]
