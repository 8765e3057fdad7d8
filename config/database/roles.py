"""As whom we work in the database: who serves fills tables, and makes, changes and owns none.

A trigger guards the record, and the owner of a table may switch its triggers off. So pages, API and
loops are served by a role that owns nothing: it may add to the record and never change it, and it
can leave no code of its own (a default, a trigger, a function) for the owner to run later.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

OWNER = "postgres"
"""Who owns the embedded server."""
SERVES = "offpeak"
"""As whom the product works on the embedded server."""

RECORD = "es_event"
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    RECORD: ("SELECT", "INSERT"),
    "django_migrations": ("SELECT",),
    "ledger_unbalanced": (),  # what the guards of postings note for themselves
    "site_probe": ("INSERT", "TRUNCATE"),
}
"""What who serves may do with a table, where that is not to read, add, change and delete rows."""

_LET_SERVE = """
REVOKE CREATE, TEMPORARY ON DATABASE {database} FROM PUBLIC;
REVOKE ALL ON DATABASE {database} FROM {role};
GRANT CONNECT ON DATABASE {database} TO {role};
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM {role};
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES GRANT USAGE, SELECT ON SEQUENCES TO {role};
"""
"""Default privileges hold for tables of later migrations, and for those that a rebuild makes.

No temporary tables: one by the name of the record would take its place for a whole connection.
"""
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('let_serve', 0))"
_SERVING = """
SELECT DISTINCT r.rolname
FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = to_regclass('public.es_event') AND a.grantee <> c.relowner
  AND a.privilege_type = 'INSERT'
"""


def let_serve(connected: psycopg.Connection[Any], role: str) -> None:
    """Let a role do what serving takes, and no more. Once more changes nothing.

    connected: as the owner of the database and its tables, or a superuser.
    """
    name = sql.Identifier(role)
    with connected.transaction():
        connected.execute(_ONE_AT_A_TIME)
        database = sql.Identifier(connected.info.dbname)
        connected.execute(sql.SQL(_LET_SERVE).format(role=name, database=database))
        for table, privileges in EXCEPTIONS.items():
            found = connected.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchone()
            if not found or found[0] is None:
                continue
            of = sql.Identifier("public", table)
            for grantee in (name, sql.SQL("PUBLIC")):
                connected.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(of, grantee))
            if privileges:
                may = sql.SQL(", ").join(map(sql.SQL, privileges))
                connected.execute(sql.SQL("GRANT {} ON {} TO {}").format(may, of, name))


def serving(connected: psycopg.Connection[Any]) -> list[str]:
    """Return who may add to the record beside its owner."""
    return [str(role) for (role,) in connected.execute(_SERVING).fetchall()]


_MEANS = """
SELECT current_user, pg_get_userbyid(c.relowner),
       array_remove(ARRAY[
           CASE WHEN me.rolsuper THEN 'is a superuser' END,
           CASE WHEN pg_has_role(c.relowner, 'MEMBER') THEN 'owns the table' END,
           CASE WHEN pg_has_role(n.nspowner, 'MEMBER') THEN 'owns the schema' END,
           CASE WHEN pg_has_role(d.datdba, 'MEMBER') THEN 'owns the database' END,
           CASE WHEN EXISTS (
               SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                WHERE t.tgrelid = c.oid AND pg_has_role(p.proowner, 'MEMBER')
           ) THEN 'owns the guard''s function' END,
           CASE WHEN has_table_privilege(c.oid, 'TRIGGER') THEN 'may make triggers' END,
           CASE WHEN me.rolcreaterole THEN 'may make itself a member of other roles' END,
           CASE WHEN pg_has_role('pg_execute_server_program', 'MEMBER')
                  OR pg_has_role('pg_write_server_files', 'MEMBER')
                THEN 'may write the server''s files' END,
           CASE WHEN has_database_privilege(current_database(), 'TEMPORARY')
                  OR has_database_privilege(current_database(), 'CREATE')
                  OR has_schema_privilege(n.oid, 'CREATE')
                THEN 'may make tables that stand before the record' END
       ], NULL)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_database d ON d.datname = current_database()
JOIN pg_roles me ON me.rolname = current_user
WHERE c.oid = 'es_event'::regclass
"""


def means_against_guard(connected: psycopg.Connection[Any]) -> tuple[str, str, list[str]]:
    """Return our role, the owner of the record, and by what our role could get past its guard."""
    row = connected.execute(_MEANS).fetchone()
    assert row is not None
    return row[0], row[1], list(row[2])
