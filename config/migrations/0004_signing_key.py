from __future__ import annotations

from typing import ClassVar

from django.db import migrations

MADE = """
CREATE TABLE site_signing_key (
    digest varchar(32) PRIMARY KEY,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL
)
"""


class Migration(migrations.Migration):
    """Which keys the processes of the installation sign with, as digests."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("site", "0003_running")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.RunSQL(MADE, "DROP TABLE site_signing_key")
    ]
