"""One event, which most appends are, without the arrays and look-ups that several take."""

from __future__ import annotations

from django.db import migrations

APPEND_ONE = """
CREATE FUNCTION es_append_one(
    p_stream text, p_expected bigint, p_id uuid, p_type text, p_schema_version int,
    p_data bytea, p_meta bytea,
    OUT outcome text, OUT at_version bigint, OUT at_position bigint
) LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    previous bytea;
BEGIN
    -- Held to the commit: positions become visible in the order in which they were given.
    PERFORM pg_advisory_xact_lock(5121);
    at_version := coalesce((
        SELECT e.version FROM es_event e
         WHERE e.stream = p_stream ORDER BY e.version DESC LIMIT 1), 0);
    IF p_expected IS NULL OR p_expected = at_version THEN
        SELECT e.position, e.hash INTO at_position, previous FROM es_event e
         ORDER BY e.position DESC LIMIT 1;
        at_version := at_version + 1;
        at_position := coalesce(at_position, 0) + 1;
        INSERT INTO es_event VALUES (at_position, p_stream, at_version, p_id, p_type,
            p_schema_version, p_data, p_meta, clock_timestamp(),
            sha256(coalesce(previous, decode(repeat('00', 32), 'hex'))
                || es_field(convert_to(at_position::text, 'UTF8'))
                || es_field(convert_to(p_stream, 'UTF8'))
                || es_field(convert_to(at_version::text, 'UTF8'))
                || es_field(convert_to(p_id::text, 'UTF8'))
                || es_field(convert_to(p_type, 'UTF8'))
                || es_field(convert_to(p_schema_version::text, 'UTF8'))
                || es_field(p_meta) || es_field(p_data)))
            ON CONFLICT (event_id) DO NOTHING;
        IF FOUND THEN
            PERFORM pg_notify('es_event', at_position::text);
            outcome := 'appended';
            RETURN;
        END IF;
    END IF;
    -- The stream has moved or the id is taken: whether it is the same event, es_append tells.
    SELECT a.outcome, a.at_version, a.at_position INTO outcome, at_version, at_position
      FROM es_append(p_stream, p_expected, ARRAY[p_id], ARRAY[p_type],
                     ARRAY[p_schema_version], ARRAY[p_data], p_meta) a;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_guards_note_for_themselves")]

    operations = [migrations.RunSQL(APPEND_ONE, "DROP FUNCTION es_append_one;")]
