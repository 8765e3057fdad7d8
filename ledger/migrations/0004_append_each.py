from django.db import migrations

APPEND_EACH = """
CREATE FUNCTION es_append_each(
    p_streams text[], p_expected bigint[], p_counts int[], p_metas bytea[],
    p_writes int[], p_versions bigint[], p_ids uuid[], p_types text[],
    p_schema_versions int[], p_data bytea[]
) RETURNS TABLE (outcome text, at_version bigint, at_position bigint) LANGUAGE plpgsql
SET lock_timeout = '5s' AS $$
DECLARE
    before bigint; last_position bigint; previous bytea; hashes bytea[]; each record;
    since int := 0;
BEGIN
    -- Held to the commit: positions become visible in the order in which they were given.
    PERFORM pg_advisory_xact_lock(5121);
    IF EXISTS (SELECT FROM es_event e WHERE e.event_id = ANY (p_ids)) OR EXISTS (
        SELECT FROM (
            SELECT w.stream, w.expected - coalesce(sum(w.events) OVER (
                       PARTITION BY w.stream ORDER BY w.n
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS version
              FROM unnest(p_streams, p_expected, p_counts) WITH ORDINALITY
                   AS w (stream, expected, events, n)
        ) asked
        WHERE asked.version IS DISTINCT FROM coalesce((
            SELECT e.version FROM es_event e
             WHERE e.stream = asked.stream ORDER BY e.version DESC LIMIT 1), 0)
    ) THEN
        -- Not as asked: one after the other, up to the first that cannot be.
        FOR number IN 1 .. cardinality(p_streams) LOOP
            SELECT a.outcome, a.at_version, a.at_position
              INTO outcome, at_version, at_position
              FROM es_append(
                  p_streams[number], p_expected[number],
                  p_ids[since + 1 : since + p_counts[number]],
                  p_types[since + 1 : since + p_counts[number]],
                  p_schema_versions[since + 1 : since + p_counts[number]],
                  p_data[since + 1 : since + p_counts[number]], p_metas[number]) a;
            RETURN NEXT;
            EXIT WHEN outcome NOT IN ('appended', 'again');
            since := since + p_counts[number];
        END LOOP;
        RETURN;
    END IF;
    SELECT e.position, e.hash INTO before, previous FROM es_event e
     ORDER BY e.position DESC LIMIT 1;
    before := coalesce(before, 0);
    last_position := before;
    previous := coalesce(previous, decode(repeat('00', 32), 'hex'));
    FOR each IN
        SELECT u.w, u.version, u.id, u.type, u.schema_version, u.data
          FROM unnest(p_writes, p_versions, p_ids, p_types, p_schema_versions, p_data)
               WITH ORDINALITY AS u (w, version, id, type, schema_version, data, n) ORDER BY u.n
    LOOP
        last_position := last_position + 1;
        previous := sha256(previous
            || es_field(convert_to(last_position::text, 'UTF8'))
            || es_field(convert_to(p_streams[each.w], 'UTF8'))
            || es_field(convert_to(each.version::text, 'UTF8'))
            || es_field(convert_to(each.id::text, 'UTF8'))
            || es_field(convert_to(each.type, 'UTF8'))
            || es_field(convert_to(each.schema_version::text, 'UTF8'))
            || es_field(p_metas[each.w]) || es_field(each.data));
        hashes[last_position - before] := previous;
    END LOOP;
    INSERT INTO es_event
        SELECT before + u.n, p_streams[u.w], u.version, u.id, u.type, u.schema_version, u.data,
               p_metas[u.w], clock_timestamp(), u.hash
          FROM unnest(p_writes, p_versions, p_ids, p_types, p_schema_versions, p_data, hashes)
               WITH ORDINALITY AS u (w, version, id, type, schema_version, data, hash, n);
    PERFORM pg_notify('es_event', last_position::text);
    outcome := 'appended';
    last_position := before;
    FOR number IN 1 .. cardinality(p_streams) LOOP
        last_position := last_position + p_counts[number];
        at_version := p_expected[number] + p_counts[number];
        at_position := last_position;
        RETURN NEXT;
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_money")]

    operations = [migrations.RunSQL(APPEND_EACH, "DROP FUNCTION es_append_each;")]
