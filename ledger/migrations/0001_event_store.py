import uuid

from django.db import migrations, models

TABLE = """
CREATE TABLE es_event (
    position bigint PRIMARY KEY,
    stream text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    event_id uuid NOT NULL UNIQUE,
    type text COLLATE "C" NOT NULL,
    schema_version int NOT NULL,
    data bytea NOT NULL,
    meta bytea NOT NULL,
    recorded_at timestamptz NOT NULL,
    hash bytea NOT NULL,
    UNIQUE (stream, version)
);
CREATE INDEX es_event_type_position ON es_event (type, position);

CREATE FUNCTION es_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'es_event is append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER es_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON es_event
    FOR EACH STATEMENT EXECUTE FUNCTION es_refuse();
"""

APPEND = """
CREATE FUNCTION es_field(field bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT int8send(octet_length(field)::bigint) || field
$$;

CREATE FUNCTION es_append(
    p_stream text, p_expected bigint, p_ids uuid[], p_types text[], p_schema_versions int[],
    p_data bytea[], p_meta bytea
) RETURNS TABLE (outcome text, at_version bigint, at_position bigint) LANGUAGE plpgsql
SET lock_timeout = '5s' AS $$
DECLARE
    known bigint; first_version bigint; last_version bigint; last_position bigint;
    same_stream boolean; known_ids uuid[]; previous bytea; stamp timestamptz; head text;
BEGIN
    -- Held to the commit: positions become visible in the order in which they were given.
    PERFORM pg_advisory_xact_lock(5121);
    SELECT count(*), min(e.version), max(e.version), max(e.position),
           bool_and(e.stream = p_stream), array_agg(e.event_id ORDER BY e.version)
      INTO known, first_version, last_version, last_position, same_stream, known_ids
      FROM es_event e WHERE e.event_id = ANY (p_ids);
    IF known > 0 THEN
        IF known_ids = p_ids AND same_stream AND last_version - first_version + 1 = known
        THEN RETURN QUERY SELECT 'again', last_version, last_position;
        ELSE RETURN QUERY SELECT 'conflict', NULL::bigint, NULL::bigint;
        END IF;
        RETURN;
    END IF;
    SELECT e.version INTO last_version FROM es_event e
     WHERE e.stream = p_stream ORDER BY e.version DESC LIMIT 1;
    last_version := coalesce(last_version, 0);
    IF p_expected IS NOT NULL AND p_expected <> last_version THEN
        RETURN QUERY SELECT 'moved', last_version, NULL::bigint;
        RETURN;
    END IF;
    SELECT e.position, e.hash INTO last_position, previous FROM es_event e
     ORDER BY e.position DESC LIMIT 1;
    last_position := coalesce(last_position, 0);
    previous := coalesce(previous, decode(repeat('00', 32), 'hex'));
    stamp := clock_timestamp();
    FOR i IN 1 .. cardinality(p_ids) LOOP
        last_position := last_position + 1;
        last_version := last_version + 1;
        previous := sha256(previous
            || es_field(convert_to(last_position::text, 'UTF8'))
            || es_field(convert_to(p_stream, 'UTF8'))
            || es_field(convert_to(last_version::text, 'UTF8'))
            || es_field(convert_to(p_ids[i]::text, 'UTF8'))
            || es_field(convert_to(p_types[i], 'UTF8'))
            || es_field(convert_to(p_schema_versions[i]::text, 'UTF8'))
            || es_field(p_meta) || es_field(p_data[i]));
        INSERT INTO es_event VALUES (last_position, p_stream, last_version, p_ids[i], p_types[i],
            p_schema_versions[i], p_data[i], p_meta, stamp, previous);
    END LOOP;
    PERFORM pg_notify('es_event', last_position::text);
    RETURN QUERY SELECT 'appended', last_version, last_position;
END $$;
"""

UNDO = """
DROP FUNCTION es_append; DROP FUNCTION es_field; DROP TABLE es_event; DROP FUNCTION es_refuse;
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.RunSQL(TABLE + APPEND, UNDO),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("name", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(default=0)),
                ("moved_at", models.DateTimeField(null=True)),
                ("error", models.TextField(default="")),
            ],
        ),
        # In an app's first migration, because others refer to "the first" for the user's table.
        migrations.CreateModel(
            name="Person",
            fields=[
                ("password", models.CharField(max_length=128, verbose_name="password")),
                (
                    "last_login",
                    models.DateTimeField(blank=True, null=True, verbose_name="last login"),
                ),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("email", models.EmailField(max_length=254, unique=True)),
                ("title", models.CharField(default="", max_length=120)),
                ("is_active", models.BooleanField(default=True)),
                ("is_demo", models.BooleanField(default=False)),
                ("joined_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"abstract": False},
        ),
    ]
