"""Who serves may add to the record and change read models; it can undo no guard, by any way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from config.database import embedded
from config.database.owning import as_owner
from config.database.roles import (
    EXCEPTIONS,
    OWNER,
    SERVES,
    let_serve,
    means_against_guard,
    serving,
)
from config.examination import _guard

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        bool(settings.ENV.database_url), reason="the server is not ours: roles are the operator's"
    ),
]


def connect(role: str, database: str, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=embedded.ensure_running(settings.HOME), user=role, dbname=database, **more
    )


@pytest.fixture(scope="module")
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The tests' own database, to which the product's role is let as an installation lets it."""
    with django_db_blocker.unblock():
        name = str(connection.settings_dict["NAME"])
    with closing(embedded.as_owner(settings.HOME, name)) as owner:
        let_serve(owner, SERVES)
        yield name
        owner.execute(f"DROP OWNED BY {SERVES}")
        owner.execute(f'GRANT TEMPORARY ON DATABASE "{name}" TO PUBLIC')


@pytest.fixture
def served(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the product has it: what it does is taken back."""
    with closing(connect(SERVES, database)) as served:
        yield served
        served.rollback()


REFUSED: dict[str, LiteralString] = {
    "switch the guard off": "ALTER TABLE es_event DISABLE TRIGGER es_event_append_only",
    "switch every trigger off": "ALTER TABLE es_event DISABLE TRIGGER ALL",
    "switch triggers off for a session": "SET session_replication_role = replica",
    "let a role have it by default": f"ALTER ROLE {SERVES} SET session_replication_role = replica",
    "drop the guard": "DROP TRIGGER es_event_append_only ON es_event",
    "rename the guard": "ALTER TRIGGER es_event_append_only ON es_event RENAME TO other",
    "replace the guard's function": (
        "CREATE OR REPLACE FUNCTION es_refuse() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$"
    ),
    "drop the guard's function": "DROP FUNCTION es_refuse() CASCADE",
    "move the guard's function": "ALTER FUNCTION es_refuse() SET SCHEMA pg_temp",
    "empty the record": "TRUNCATE es_event",
    "empty all": "TRUNCATE es_event, ledger_postingrow CASCADE",
    "delete": "DELETE FROM es_event",
    "delete nothing": "DELETE FROM es_event WHERE false",
    "update": "UPDATE es_event SET data = ''",
    "update one column": "UPDATE es_event SET recorded_at = now() WHERE false",
    "update on conflict": (
        "INSERT INTO es_event SELECT * FROM es_event ON CONFLICT (position) DO UPDATE SET data = ''"
    ),
    "merge": (
        "MERGE INTO es_event e USING (SELECT 1 AS n) s ON e.position = s.n WHEN MATCHED THEN DELETE"
    ),
    "lock readers out": "LOCK TABLE es_event IN ACCESS EXCLUSIVE MODE",
    "drop": "DROP TABLE es_event",
    "rename": "ALTER TABLE es_event RENAME TO hidden",
    "change a column": "ALTER TABLE es_event ALTER COLUMN data TYPE text USING ''",
    "take it over": "ALTER TABLE es_event OWNER TO CURRENT_USER",
    "attach it": "CREATE TABLE whole (LIKE es_event) PARTITION BY RANGE (position)",
    "a trigger": (
        "CREATE TRIGGER b BEFORE INSERT ON es_event FOR EACH ROW EXECUTE FUNCTION"
        " suppress_redundant_updates_trigger()"
    ),
    "a rule": "CREATE RULE r AS ON INSERT TO es_event DO INSTEAD NOTHING",
    "a policy": "ALTER TABLE es_event ENABLE ROW LEVEL SECURITY",
    "an index": "CREATE UNIQUE INDEX once ON es_event (schema_version)",
    "a table in public": "CREATE TABLE public.es_events (position bigint)",
    "a view in public": "CREATE VIEW public.es_events AS SELECT * FROM es_event",
    "a function that is called before ours": (
        "CREATE FUNCTION public.es_append(text, int, uuid[], text[], int[], bytea[], bytea)"
        " RETURNS void LANGUAGE sql AS ''"
    ),
    "a schema that is looked in first": f"CREATE SCHEMA {SERVES}",
    "a temporary table in its place": "CREATE TEMPORARY TABLE es_event (position bigint)",
    "a temporary view in its place": "CREATE TEMPORARY VIEW es_event AS SELECT 1",
    "a temporary function": "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "rename the schema": "ALTER SCHEMA public RENAME TO other",
    "drop the schema": "DROP SCHEMA public CASCADE",
    "code for the owner in a default": (
        "ALTER TABLE ledger_checkpoint ALTER COLUMN position SET DEFAULT random()"
    ),
    "code for the owner in a trigger": (
        "CREATE TRIGGER b BEFORE UPDATE ON django_migrations FOR EACH ROW EXECUTE FUNCTION"
        " suppress_redundant_updates_trigger()"
    ),
    "forget a migration": "DELETE FROM django_migrations",
    "feign a migration": (
        "INSERT INTO django_migrations (app, name, applied) VALUES ('ledger', '9999', now())"
    ),
    "another's default": f"ALTER ROLE {OWNER} SET session_replication_role = replica",
    "be the owner": f"SET ROLE {OWNER}",
    "be the owner of the session": f"SET SESSION AUTHORIZATION {OWNER}",
    "become a superuser": f"ALTER ROLE {SERVES} SUPERUSER",
    "give itself a role": f"GRANT {OWNER} TO {SERVES}",
    "give itself a privilege": (
        f"GRANT ALL ON es_event TO {SERVES}; DELETE FROM es_event WHERE false"
    ),
    "make a role": "CREATE ROLE other SUPERUSER",
    "the owner's password": f"ALTER ROLE {OWNER} PASSWORD 'mine'",
    "run a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "write a file": "COPY (SELECT 1) TO '/tmp/offpeak-was-here'",
    "read the secret": "SELECT pg_read_file('../postgres.secret')",
    "change the server": "SELECT pg_reload_conf()",
    "an untrusted function": "CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'f'",
    "an event trigger": "CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION es_refuse()",
    "switch the guard of postings off": "ALTER TABLE ledger_postingrow DISABLE TRIGGER USER",
    "drop a guard of postings": "DROP TRIGGER ledger_postings_came ON ledger_postingrow",
    "empty the postings": "TRUNCATE ledger_postingrow",
    "remove the notes of the guards": "DELETE FROM ledger_unbalanced",
    "drop the check of entries": (
        "ALTER TABLE ledger_journalentryrow DROP CONSTRAINT ledger_entry_balances"
    ),
    "replace the check of entries": (
        "CREATE OR REPLACE FUNCTION ledger_balances(uuid[], bigint[]) RETURNS boolean"
        " LANGUAGE sql IMMUTABLE AS 'SELECT true'"
    ),
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_who_serves_is_refused(served: psycopg.Connection[Any], attempt: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        served.execute(REFUSED[attempt])

    assert refused.value.sqlstate == "42501", refused.value


def test_who_serves_cannot_set_the_server(database: str) -> None:
    with (
        closing(connect(SERVES, database, autocommit=True)) as served,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        served.execute("ALTER SYSTEM SET session_replication_role = replica")


def append(served: psycopg.Connection[Any], text: bytes = b"{}") -> tuple[Any, ...] | None:
    return served.execute(
        "SELECT outcome, at_version FROM es_append(%s::text, 0::bigint, ARRAY[%s]::uuid[],"
        " ARRAY['test.said']::text[], ARRAY[1]::int[], ARRAY[%s]::bytea[], %s::bytea)",
        [f"test-{uuid4()}", uuid4(), text, b"{}"],
    ).fetchone()


def test_who_serves_adds_to_the_record_and_writes_read_models(
    served: psycopg.Connection[Any],
) -> None:
    assert append(served) == ("appended", 1)
    served.execute("INSERT INTO ledger_checkpoint (name, position, error) VALUES ('x', 1, '')")
    served.execute("UPDATE ledger_checkpoint SET position = 2 WHERE name = 'x'")
    served.execute("DELETE FROM ledger_checkpoint WHERE name = 'x'")
    served.execute("TRUNCATE site_probe")
    served.execute("SELECT pg_advisory_xact_lock(1), count(*) FROM django_migrations")


ENTRY = "00000000-0000-4000-8000-000000000001"
UNBALANCED = (
    "INSERT INTO ledger_postingrow (line_id, entry_id, account_id, position, period, kind,"
    " cost_centre, reference, currency, nanos, at)"
    f" VALUES ('{ENTRY}:0', '{ENTRY}', '{ENTRY}', 1, '2026-01', 'funds', '', '', 'USD', 5, now())"
)


def test_postings_that_do_not_balance_are_refused_to_who_serves(
    served: psycopg.Connection[Any],
) -> None:
    served.execute(UNBALANCED)

    with pytest.raises(psycopg.errors.CheckViolation, match="ledger_postings_balance"):
        served.commit()


def test_who_serves_may_write_a_later_table_and_not_leave_code_on_it(
    database: str, served: psycopg.Connection[Any]
) -> None:
    name = sql.Identifier(f"later_{uuid4().hex[:8]}")
    with closing(embedded.as_owner(settings.HOME, database)) as owner:
        owner.execute(sql.SQL("CREATE TABLE {} (n serial PRIMARY KEY)").format(name))
        try:
            served.execute(sql.SQL("INSERT INTO {} DEFAULT VALUES").format(name))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                served.execute(
                    sql.SQL(
                        "CREATE TRIGGER t BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION"
                        " suppress_redundant_updates_trigger()"
                    ).format(name)
                )
            served.rollback()
        finally:
            owner.execute(sql.SQL("DROP TABLE {}").format(name))


def test_nobody_is_believed_to_be_the_owner_without_its_password(database: str) -> None:
    for password in ({}, {"password": "postgres"}, {"password": "x"}):
        with pytest.raises(psycopg.OperationalError, match="password"):
            connect(OWNER, database, **password)
    assert (settings.HOME / embedded.SECRET).stat().st_mode & 0o077 == 0


def test_doctor_says_against_whom_the_record_is_guarded(
    served: psycopg.Connection[Any],
) -> None:
    told = _guard()
    assert told.ok
    assert told.detail.startswith(f"not against {OWNER}, as whom the market works: it is a super")

    role, owner, means = means_against_guard(served)

    assert (role, owner, means) == (SERVES, OWNER, [])


def test_doctor_fails_where_the_guard_is_off_or_does_nothing() -> None:
    for statement in (
        "ALTER TABLE es_event DISABLE TRIGGER USER",
        "ALTER TABLE es_event ENABLE REPLICA TRIGGER es_event_append_only",
        "DROP TRIGGER es_event_append_only ON es_event",
        "CREATE OR REPLACE FUNCTION es_refuse() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$",
    ):
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(statement)
            told = _guard()
            transaction.set_rollback(True)

        assert not told.ok, statement


@pytest.fixture
def empty_database(database: str) -> Iterator[str]:
    """A database of a test's own on the tests' server."""
    name = f"test_offpeak_roles_{uuid4().hex[:8]}"
    with closing(embedded.as_owner(settings.HOME, "postgres")) as owner:
        owner.execute(f"CREATE DATABASE {name}")
        yield name
        owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


EARLIER = import_module("ledger.migrations.0001_event_store").TABLE


def test_an_installation_of_an_earlier_version_is_let_on_as_it_is(empty_database: str) -> None:
    """There everything is the superuser's, who served: the record stays, and is out of reach."""
    with closing(embedded.as_owner(settings.HOME, empty_database)) as owner:
        owner.execute(EARLIER)
        owner.execute("CREATE TABLE a_read_model (n int); CREATE TABLE django_migrations (n int)")
        owner.execute(
            "INSERT INTO es_event VALUES (1, 's', 1, gen_random_uuid(), 't', 1, '', '', now(), '')"
        )

        for _start in range(2):
            let_serve(owner, SERVES)

        assert serving(owner) == [SERVES]
    with closing(connect(SERVES, empty_database, autocommit=True)) as served:
        served.execute("INSERT INTO a_read_model VALUES (1)")
        assert served.execute("SELECT count(*) FROM es_event").fetchone() == (1,)
        for statement in OF_THE_RECORD:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), served.transaction():
                served.execute(statement)
        assert means_against_guard(served)[2] == []


OF_THE_RECORD = [
    statement
    for statement in REFUSED.values()
    if "es_event" in statement and "posting" not in statement
]


def documented(part: str, **names: str) -> list[str]:
    """Return the statements of a block of SQL in the document for operators."""
    text = (ROOT / "config" / "docs" / "operating.md").read_text()
    block = next(each for each in re.findall(r"```sql\n(.*?)```", text, re.S) if part in each)
    for name, other in names.items():
        block = re.sub(rf"\b{name}\b", other, block)
    return [each.strip() for each in block.split(";") if each.strip()]


@pytest.fixture
def two_roles() -> Iterator[tuple[str, str, str]]:
    """Names of a database, its owner and who serves, for an operator's own server."""
    mark = uuid4().hex[:8]
    name, owner, serves = f"test_offpeak_{mark}", f"owner_{mark}", f"serves_{mark}"
    yield name, owner, serves
    with closing(embedded.as_owner(settings.HOME, "postgres")) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for role in (serves, owner):
            admin.execute(f"DROP ROLE IF EXISTS {role}")


def test_the_documented_roles_of_an_operators_own_server_hold(
    database: str, two_roles: tuple[str, str, str]
) -> None:
    name, owner, serves = two_roles
    with closing(embedded.as_owner(settings.HOME, "postgres")) as admin:
        for statement in documented(
            "CREATE DATABASE", offpeak_owner=owner, offpeak_role=serves, offpeak=name
        ):
            admin.execute(statement)
    with closing(connect(owner, name, autocommit=True)) as owns:
        owns.execute(EARLIER)
        let_serve(owns, serves)
        owns.execute("CREATE TABLE later (n int)")

    with closing(connect(serves, name, autocommit=True)) as served:
        served.execute("INSERT INTO later VALUES (1)")
        for statement in OF_THE_RECORD:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), served.transaction():
                served.execute(statement.replace(SERVES, serves))
        assert means_against_guard(served) == (serves, owner, [])


def test_one_role_that_had_everything_becomes_two_as_documented(
    database: str, two_roles: tuple[str, str, str]
) -> None:
    name, owner, serves = two_roles
    with closing(embedded.as_owner(settings.HOME, "postgres")) as admin:
        admin.execute(f"CREATE ROLE {serves} LOGIN")
        admin.execute(f"CREATE DATABASE {name} OWNER {serves}")
    with closing(connect(serves, name, autocommit=True)) as had:
        had.execute(EARLIER)
        assert "owns the table" in means_against_guard(had)[2]

    with closing(embedded.as_owner(settings.HOME, name)) as admin:
        for statement in documented(
            "REASSIGN", offpeak_owner=owner, offpeak_role=serves, offpeak=name
        ):
            admin.execute(statement)
    with closing(connect(owner, name, autocommit=True)) as owns:
        let_serve(owns, serves)

    with closing(connect(serves, name, autocommit=True)) as served:
        assert means_against_guard(served) == (serves, owner, [])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            served.execute("ALTER TABLE es_event DISABLE TRIGGER ALL")


@pytest.mark.parametrize(
    ("role", "why"), [("nobody_here", "There is no role"), (OWNER, "rights of the tables' owner")]
)
def test_a_role_that_cannot_be_let_serve_is_refused_with_the_reason(role: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        call_command("grant", role)


def test_a_command_that_takes_the_owner_says_so_to_another() -> None:
    with (
        pytest.raises(CommandError, match="takes the owner of the tables"),
        as_owner(),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SET LOCAL ROLE {SERVES}")
        cursor.execute("CREATE TABLE mine (n int)")


def test_every_exception_is_a_table_of_ours() -> None:
    tables = set(connection.introspection.table_names())

    assert set(EXCEPTIONS) <= tables
