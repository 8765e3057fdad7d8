"""Questions that every request asks: prepared once for each connection of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import psycopg
from django.db import connection

from ledger.outages import letting_go

AHEAD_MAX = 16
"""Statements that are sent before the first of them is answered."""


def ask(sql: str, parameters: Sequence[object] | Mapping[str, object]) -> tuple[Any, ...] | None:
    """Return the first row of the answer, None where there is none.

    Django's own cursor writes the values into the text, which is then read and planned anew each
    time: for these questions that takes longer than the answer.
    """
    return next(iter(ask_for_all(sql, parameters)), None)


def ask_for_all(
    sql: str, parameters: Sequence[object] | Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Return every row of the answer."""
    connection.ensure_connection()
    with letting_go(), psycopg.Cursor[tuple[Any, ...]](connection.connection) as cursor:
        cursor.execute(sql, parameters, prepare=True)
        return cursor.fetchall() if cursor.description else []


def tell_all(statements: Iterable[tuple[str, Sequence[object]]]) -> None:
    """Carry out statements that answer nothing, in their order, without waiting for each.

    The first that fails ends them; what then stands of those before it a transaction says.
    """
    left = iter(statements)
    while some := list(islice(left, AHEAD_MAX)):
        connection.ensure_connection()
        with letting_go(), psycopg.Cursor[tuple[Any, ...]](connection.connection) as cursor:
            alone = len(some) == 1
            with nullcontext() if alone else connection.connection.pipeline():
                for sql, parameters in some:
                    cursor.execute(sql, parameters, prepare=True)
