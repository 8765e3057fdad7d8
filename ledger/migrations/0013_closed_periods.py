"""Months are closed, and the database refuses entries that would count in a closed one.

An entry was recorded in time if the event that closed the month stands behind it in the store. A
month without a row of its own is closed with the first one that is.
"""

from __future__ import annotations

from django.db import migrations, models

# Rows are looked for where the session looks first: a rebuild fills tables in a schema of its own.
FUNCTION = """
CREATE FUNCTION ledger_period_is_open() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    late record;
BEGIN
    SELECT came.entry_id, came.period INTO late FROM came
     WHERE EXISTS (
        SELECT FROM ledger_periodrow closed
         WHERE closed.state = 'closed' AND closed.closed_position < came.position
           AND (closed.period = came.period OR (closed.period > came.period AND NOT EXISTS (
               SELECT FROM ledger_periodrow own WHERE own.period = came.period)))
     ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'entry % would count in %, which is closed', late.entry_id, late.period
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_period_is_open';
    END IF;
    RETURN NULL;
END $$;
"""

# The same as OPEN_GUARD was when this was written: a rebuild makes the tables anew by that.
GUARDS = """
CREATE TRIGGER ledger_journalentryrow_open AFTER INSERT ON ledger_journalentryrow
    REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_period_is_open();
CREATE TRIGGER ledger_postingrow_open AFTER INSERT ON ledger_postingrow
    REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_period_is_open();
"""

UNDO = """
DROP TRIGGER ledger_journalentryrow_open ON ledger_journalentryrow;
DROP TRIGGER ledger_postingrow_open ON ledger_postingrow;
DROP FUNCTION ledger_period_is_open();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0012_energy'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClosedThroughRow',
            fields=[
                ('books', models.CharField(max_length=8, primary_key=True, serialize=False)),
                ('period', models.CharField(max_length=7)),
            ],
        ),
        migrations.CreateModel(
            name='PeriodRow',
            fields=[
                ('period', models.CharField(max_length=7, primary_key=True, serialize=False)),
                ('state', models.CharField(max_length=12)),
                ('soft_closed_at', models.DateTimeField(null=True)),
                ('soft_closed_by', models.UUIDField(null=True)),
                ('closed_at', models.DateTimeField(null=True)),
                ('closed_by', models.UUIDField(null=True)),
                ('closed_position', models.BigIntegerField(null=True)),
                ('reopening_reason', models.CharField(max_length=200)),
                ('reopening_by', models.UUIDField(null=True)),
                ('reopening_at', models.DateTimeField(null=True)),
                ('reopened_reason', models.CharField(max_length=200)),
                ('reopened_at', models.DateTimeField(null=True)),
                ('reopened_by', models.UUIDField(null=True)),
                ('reopened_with', models.UUIDField(null=True)),
                ('exports', models.JSONField(default=list)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('closed_position__isnull', False), ('state', 'closed')), models.Q(models.Q(('state', 'closed'), _negated=True), ('closed_position__isnull', True)), _connector='OR'), name='ledger_closed_period_has_position')],
            },
        ),
        migrations.RunSQL(FUNCTION + GUARDS, UNDO),
    ]
