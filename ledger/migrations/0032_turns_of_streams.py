from django.db import migrations

TAKE_TURN = """
CREATE FUNCTION es_take_turn(p_stream text) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
BEGIN
    -- Held by the session, not to the commit: whoever has it appends by itself.
    PERFORM pg_advisory_lock(5122, hashtext(p_stream));
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0031_export_plans")]

    operations = [migrations.RunSQL(TAKE_TURN, "DROP FUNCTION es_take_turn;")]
