"""Intervals lie in one table a day, and which numbers were taken is kept beside them.

What is there stays where it is: the old table becomes the part for everything up to tomorrow, so
nothing is copied. A unique index over parts would have to hold the time as well, and would let one
number come twice at two times; so the numbers that were taken are kept as spans, one row for each
run of an agent, which are a few bytes where the index was a third of the table.

Who serves owns no table (decision 57). What makes and drops parts are functions of the owner, which
look themselves whether that is allowed: a part is made near the present only, and dropped only when
nothing can be rated or corrected by it any more.
"""

from __future__ import annotations

import django.contrib.postgres.fields
from django.db import migrations, models

_BY_TIME = """
ALTER TABLE metering_interval RENAME TO metering_interval_before;
ALTER INDEX interval_by_lease RENAME TO interval_before_by_lease;

INSERT INTO metering_taken (host_id, boot_id, spans)
SELECT host_id, boot_id, array_agg(each ORDER BY each) FROM (
    SELECT host_id, boot_id, unnest(ARRAY[min(seq), max(seq) + 1]) AS each FROM (
        SELECT host_id, boot_id, seq,
            seq - row_number() OVER (PARTITION BY host_id, boot_id ORDER BY seq) AS island
        FROM (
            SELECT host_id, boot_id, seq FROM metering_interval_before
            UNION SELECT host_id, boot_id, seq FROM metering_healthevent
        ) AS numbers
    ) AS islands
    GROUP BY host_id, boot_id, island
) AS ends
GROUP BY host_id, boot_id;

DO $$
DECLARE
    its_key text := (SELECT conname FROM pg_constraint
        WHERE conrelid = 'metering_interval_before'::regclass AND contype = 'p');
    cut bigint := (1 + floor(greatest(
        coalesce((SELECT max(end_ms) FROM metering_interval_before), 0),
        extract(epoch FROM now()) * 1000
    ) / 86400000)) * 86400000;
BEGIN
    EXECUTE format('ALTER TABLE metering_interval_before DROP CONSTRAINT %I', its_key);
    CREATE TABLE metering_interval (LIKE metering_interval_before INCLUDING DEFAULTS)
        PARTITION BY RANGE (end_ms);
    CREATE INDEX interval_by_lease ON metering_interval (lease_id, end_ms);
    EXECUTE format('ALTER TABLE metering_interval ATTACH PARTITION metering_interval_before
        FOR VALUES FROM (MINVALUE) TO (%s)', cut);
    CREATE TABLE metering_interval_other PARTITION OF metering_interval DEFAULT;
END
$$;
"""

_FUNCTIONS = """
CREATE FUNCTION metering_interval_parts(OUT name text, OUT from_ms bigint, OUT to_ms bigint)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.relname::text,
        substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \\(''?(-?\\d+)''?\\)')::bigint,
        substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \\(''?(-?\\d+)''?\\)')::bigint
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'public.metering_interval'::regclass
$$;
COMMENT ON FUNCTION metering_interval_parts() IS
    'The parts of the table of intervals; without bounds: the one for what fits no other.';

CREATE FUNCTION metering_make_part(day_ms bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    day_long CONSTANT bigint := 86400000;
    now_ms CONSTANT bigint := extract(epoch FROM now()) * 1000;
    name text := 'metering_interval_' || to_char(to_timestamp(day_ms / 1000.0) AT TIME ZONE 'UTC',
        'YYYYMMDD');
BEGIN
    IF day_ms % day_long <> 0 OR abs(day_ms - now_ms) > 40 * day_long THEN
        RAISE EXCEPTION 'no part is made for %, which is no day near the present', day_ms;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('metering_interval', 0));
    IF EXISTS (SELECT FROM public.metering_interval_parts() p
        WHERE p.to_ms > day_ms AND coalesce(p.from_ms, day_ms) < day_ms + day_long)
    THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.metering_interval INCLUDING DEFAULTS)',
        name);
    EXECUTE format('CREATE INDEX ON public.%I (lease_id, end_ms)', name);
    -- What came for that day while it had no part: the one for the rest must not keep it.
    LOCK TABLE public.metering_interval_other IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('WITH those AS (DELETE FROM public.metering_interval_other
            WHERE end_ms >= %1$s AND end_ms < %2$s RETURNING *)
        INSERT INTO public.%3$I SELECT * FROM those', day_ms, day_ms + day_long, name);
    EXECUTE format('ALTER TABLE public.metering_interval ATTACH PARTITION public.%I
        FOR VALUES FROM (%s) TO (%s)', name, day_ms, day_ms + day_long);
    RETURN true;
END
$$;

CREATE FUNCTION metering_drop_part(which text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    until_ms bigint := (SELECT to_ms FROM public.metering_interval_parts() WHERE name = which);
    horizon_ms CONSTANT bigint := (extract(epoch FROM now()) - 36 * 86400) * 1000;
BEGIN
    IF until_ms IS NULL THEN
        RETURN 'there is no such part';
    ELSIF until_ms > horizon_ms THEN
        RETURN 'it may still be corrected by';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('metering_interval', 0));
    EXECUTE format('LOCK TABLE public.%I IN ACCESS EXCLUSIVE MODE', which);
    IF EXISTS (SELECT FROM public.metering_meterrow m WHERE m.state <> 'closed'
        AND m.closed_through_ms < until_ms AND m.starts_ms < until_ms)
    THEN
        RETURN 'a lease is not rated up to its end';
    ELSIF EXISTS (SELECT FROM public.metering_lateuse l WHERE l.start_ms < until_ms) THEN
        RETURN 'late use of it is not looked at yet';
    END IF;
    EXECUTE format('DROP TABLE public.%I', which);
    RETURN '';
END
$$;
"""

_AHEAD = """
SELECT metering_make_part(day * 86400000) FROM generate_series(
    floor(extract(epoch FROM now()) / 86400)::bigint,
    floor(extract(epoch FROM now()) / 86400)::bigint + 7
) AS day;
"""

_BACK = """
DROP FUNCTION metering_drop_part(text);
DROP FUNCTION metering_make_part(bigint);
DROP FUNCTION metering_interval_parts();
"""

_IN_ONE = """
ALTER TABLE metering_interval RENAME TO metering_interval_parted;
ALTER INDEX interval_by_lease RENAME TO interval_parted_by_lease;
CREATE TABLE metering_interval (LIKE metering_interval_parted INCLUDING DEFAULTS);
INSERT INTO metering_interval SELECT * FROM metering_interval_parted;
DROP TABLE metering_interval_parted;
ALTER TABLE metering_interval ADD PRIMARY KEY (host_id, boot_id, seq);
CREATE INDEX interval_by_lease ON metering_interval (lease_id, end_ms);
"""


class Migration(migrations.Migration):
    dependencies = [("metering", "0007_energy")]

    operations = [
        migrations.CreateModel(
            name="Taken",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "host_id",
                        "boot_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("host_id", models.UUIDField()),
                ("boot_id", models.UUIDField()),
                (
                    "spans",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OldPart",
            fields=[
                ("name", models.CharField(max_length=63, primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL(_BY_TIME, _IN_ONE),
        migrations.RunSQL(_FUNCTIONS, _BACK),
        migrations.RunSQL(_AHEAD, migrations.RunSQL.noop),
    ]
