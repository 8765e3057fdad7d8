"""Postings are guarded as entries are: those of one entry sum to zero in each currency.

A CHECK sees one row, and an entry's postings are many. So a trigger for each statement adds up what
it brought and took, entry by entry, and notes what does not balance; what is noted is checked when
the transaction commits. A statement that balances, as the projection's do, costs one sum.
"""

from __future__ import annotations

from django.db import migrations

FUNCTIONS = """
CREATE TABLE ledger_unbalanced (
    entry_id uuid NOT NULL,
    currency text NOT NULL,
    nanos numeric NOT NULL
);
CREATE INDEX ledger_unbalanced_by_entry ON ledger_unbalanced (entry_id);

CREATE FUNCTION ledger_postings_came() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.ledger_unbalanced
    SELECT entry_id, currency, sum(nanos) FROM came GROUP BY entry_id, currency
    HAVING sum(nanos) <> 0;
    RETURN NULL;
END $$;

CREATE FUNCTION ledger_postings_went() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.ledger_unbalanced
    SELECT entry_id, currency, -sum(nanos) FROM went GROUP BY entry_id, currency;
    RETURN NULL;
END $$;

CREATE FUNCTION ledger_postings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Whose account it is may become known later; what was posted is never changed.
    IF EXISTS (
        SELECT line_id, entry_id, account_id, position, period, currency, nanos FROM went
        EXCEPT SELECT line_id, entry_id, account_id, position, period, currency, nanos FROM came
    ) THEN
        RAISE EXCEPTION 'a posting is never changed: record an entry that corrects it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_posting_stays';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION ledger_check_postings() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    off numeric;
BEGIN
    SELECT sum(nanos) INTO off FROM public.ledger_unbalanced
     WHERE entry_id = NEW.entry_id AND currency = NEW.currency;
    IF off IS NULL THEN
        RETURN NULL;  -- checked with an earlier row of this transaction
    END IF;
    IF off <> 0 THEN
        RAISE EXCEPTION 'the postings of entry % do not balance: ledger_postings_balance (% %)',
            NEW.entry_id, off, NEW.currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_postings_balance';
    END IF;
    IF EXISTS (
        SELECT FROM public.ledger_journalentryrow j
         WHERE j.entry_id = NEW.entry_id AND cardinality(j.nanos) > 0
    ) AND NOT EXISTS (
        SELECT FROM public.ledger_postingrow p WHERE p.line_id = NEW.entry_id::text || ':0'
    ) THEN
        RAISE EXCEPTION 'entry % has lost its postings: ledger_postings_balance', NEW.entry_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_postings_balance';
    END IF;
    DELETE FROM public.ledger_unbalanced
     WHERE entry_id = NEW.entry_id AND currency = NEW.currency;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER ledger_check_postings AFTER INSERT ON ledger_unbalanced
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_check_postings();
"""

# The same as PostingRow.GUARDS was when this was written: a rebuild makes the table anew by that.
GUARDS = """
CREATE TRIGGER ledger_postings_came AFTER INSERT ON ledger_postingrow
    REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_came();
CREATE TRIGGER ledger_postings_went AFTER DELETE ON ledger_postingrow
    REFERENCING OLD TABLE AS went
    FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_went();
CREATE TRIGGER ledger_postings_changed AFTER UPDATE ON ledger_postingrow
    REFERENCING OLD TABLE AS went NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_changed();
"""

UNDO = """
DROP TRIGGER ledger_postings_came ON ledger_postingrow;
DROP TRIGGER ledger_postings_went ON ledger_postingrow;
DROP TRIGGER ledger_postings_changed ON ledger_postingrow;
DROP TABLE ledger_unbalanced;
DROP FUNCTION ledger_check_postings();
DROP FUNCTION ledger_postings_came();
DROP FUNCTION ledger_postings_went();
DROP FUNCTION ledger_postings_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0004_append_each")]

    operations = [migrations.RunSQL(FUNCTIONS + GUARDS, UNDO)]
