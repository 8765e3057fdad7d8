"""What a long account needs of its older events is found by their ids, without reading them.

The ids are read where an event has them in its JSON: a quote in a text is escaped there, so the
key in quotes stands for itself.
"""

from __future__ import annotations

from django.db import migrations, models

FIND = """
CREATE FUNCTION es_id_in(data bytea, key text) RETURNS uuid LANGUAGE plpgsql IMMUTABLE STRICT
PARALLEL SAFE AS $$
DECLARE
    at int := position(key::bytea in data);
BEGIN
    IF at = 0 THEN
        RETURN NULL;
    END IF;
    RETURN encode(substring(data from at + length(key) for 36), 'escape')::uuid;
END $$;
CREATE INDEX es_event_entry ON es_event (es_id_in(data, '"entry_id":"'))
    WHERE stream >= 'account-' AND stream < 'account.'
      AND es_id_in(data, '"entry_id":"') IS NOT NULL;
CREATE INDEX es_event_hold ON es_event (es_id_in(data, '"hold_id":"'))
    WHERE stream >= 'account-' AND stream < 'account.'
      AND es_id_in(data, '"hold_id":"') IS NOT NULL;
"""

SUM_UP = """
INSERT INTO ledger_postingsumrow (sum_id, account_id, period, block, kind, nanos, lines)
SELECT account_id || ':' || period || ':' || position / 16384 || ':' || kind,
       account_id, period, position / 16384, kind, sum(nanos), count(*)
  FROM ledger_postingrow GROUP BY account_id, period, position / 16384, kind
"""

UNDO = "DROP INDEX es_event_hold; DROP INDEX es_event_entry; DROP FUNCTION es_id_in;"


class Migration(migrations.Migration):

    dependencies = [("ledger", "0015_deliveries")]

    operations = [
        migrations.RunSQL(FIND, UNDO),
        migrations.CreateModel(
            name="PostingSumRow",
            fields=[
                (
                    "sum_id",
                    models.CharField(max_length=80, primary_key=True, serialize=False),
                ),
                ("account_id", models.UUIDField()),
                ("period", models.CharField(max_length=7)),
                ("block", models.BigIntegerField()),
                ("kind", models.CharField(max_length=12)),
                ("nanos", models.BigIntegerField()),
                ("lines", models.IntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["account_id", "period", "block"], name="ledger_sum_by_account"
                    )
                ],
            },
        ),
        migrations.RunSQL(SUM_UP, migrations.RunSQL.noop),
    ]
