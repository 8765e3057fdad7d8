"""Looks for values where none may be: in every table, and in every file below a folder."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from django.db import connection


def spellings(value: str) -> list[bytes]:
    """Return a value as it may stand somewhere."""
    plain = value.encode()
    return [plain, base64.b64encode(plain), plain.hex().encode(), quote(value, safe="").encode()]


def tables_with(value: str) -> list[str]:
    """Return the tables of the database that hold a value, in whatever column."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        for (table,) in cursor.fetchall():
            # A row as text writes bytes as hexadecimal digits.
            cursor.execute(f"SELECT row::text FROM {table} AS row")  # its own names
            rows = "\n".join(row for (row,) in cursor.fetchall()).encode()
            if any(spelling in rows for spelling in spellings(value)):
                found.append(table)
    return found


def files_with(folder: Path, *values: str) -> list[Path]:
    """Return the files below a folder that hold one of these values."""
    wanted = [spelling for value in values for spelling in spellings(value)]
    return [path for path in _files(folder) if any(each in path.read_bytes() for each in wanted)]


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path
