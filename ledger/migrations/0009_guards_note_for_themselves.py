"""What the guards of postings note is for them alone: who could remove a note could unbalance.

So they work as their owner, who may write the notes where who serves may not (`manage.py grant`).
"""

from __future__ import annotations

from django.db import migrations

GUARDS = (
    "ledger_postings_came",
    "ledger_postings_went",
    "ledger_postings_changed",
    "ledger_check_postings",
)
DO = "ALTER FUNCTION {}() SECURITY DEFINER SET search_path = pg_catalog, pg_temp;"
UNDO = "ALTER FUNCTION {}() SECURITY INVOKER RESET search_path;"


class Migration(migrations.Migration):
    dependencies = [("ledger", "0008_invitations")]

    operations = [
        migrations.RunSQL(
            "\n".join(map(DO.format, GUARDS)), "\n".join(map(UNDO.format, GUARDS))
        )
    ]
