from django.db import migrations

APPEND_WHOLE = """
CREATE FUNCTION es_append_whole(
    p_streams text[], p_expected bigint[], p_counts int[], p_metas bytea[],
    p_writes int[], p_versions bigint[], p_ids uuid[], p_types text[],
    p_schema_versions int[], p_data bytea[]
) RETURNS TABLE (outcome text, at_version bigint, at_position bigint) LANGUAGE plpgsql
SET lock_timeout = '5s' AS $$
BEGIN
    -- Held to the commit: what is true here is true where es_append_each asks again.
    PERFORM pg_advisory_xact_lock(5121);
    IF (SELECT count(*) FROM es_event e WHERE e.event_id = ANY (p_ids)) < cardinality(p_ids) THEN
        -- A reply was not lost, so every stream must be where it is expected.
        SELECT 'moved', asked.at, asked.n INTO outcome, at_version, at_position FROM (
            SELECT w.n, w.expected - coalesce(sum(w.events) OVER (
                       PARTITION BY w.stream ORDER BY w.n
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS version,
                   coalesce((
                       SELECT e.version FROM es_event e
                        WHERE e.stream = w.stream ORDER BY e.version DESC LIMIT 1), 0) AS at
              FROM unnest(p_streams, p_expected, p_counts) WITH ORDINALITY
                   AS w (stream, expected, events, n)
        ) asked
        WHERE asked.version <> asked.at ORDER BY asked.n LIMIT 1;
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM es_append_each(
        p_streams, p_expected, p_counts, p_metas, p_writes, p_versions, p_ids, p_types,
        p_schema_versions, p_data);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0005_postings_balance")]

    operations = [migrations.RunSQL(APPEND_WHOLE, "DROP FUNCTION es_append_whole;")]
