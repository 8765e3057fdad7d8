"""Tables emptied after a test that commits: only what is in them is removed, in one question.

Django truncates each table, full or not, which makes new files for all of them, and then finds all
kinds of rows and permissions anew, which a test does not take away.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db import connection

KEPT = {"django_content_type", "auth_permission"}


def empty_tables(_test: Any) -> None:
    """Take the place of `TransactionTestCase._fixture_teardown`."""
    with connection.cursor() as cursor:
        cursor.execute(_statement())


@cache
def _statement() -> str:
    names = set(connection.introspection.django_table_names(only_existing=True)) - KEPT
    every = ", ".join(f"'{name}'" for name in sorted(names))
    return f"""
DO $$ DECLARE name text; BEGIN
  SET LOCAL session_replication_role = replica;  -- without triggers: some refuse the ordinary way
  FOREACH name IN ARRAY ARRAY[{every}] LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
END $$"""
