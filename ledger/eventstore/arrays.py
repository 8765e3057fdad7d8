"""Arrays in the form in which PostgreSQL sends and takes them.

psycopg asks of each value of a list what it is and how it is written; for an append, whose columns
are lists of one type, that takes as long as all the rest of its preparation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_BYTEA, _BIGINT, _INT, _TEXT, _UUID = 17, 20, 23, 25, 2950
_head = struct.Struct("!iiIii").pack
_no_head = struct.Struct("!iiI").pack
_length = struct.Struct("!i").pack
_bigint = struct.Struct("!iq").pack
_int = struct.Struct("!ii").pack


class Packed(bytes):
    """A whole array, ready to be sent. The statement says of which type: `%s::uuid[]`."""


class _AsItIs(Dumper):
    format = Format.BINARY
    oid = 0

    def dump(self, obj: Packed) -> Packed:
        return obj


def let_send(cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
    """Let a cursor take what is packed here."""
    cursor.adapters.register_dumper(Packed, _AsItIs)


def bigints(values: Sequence[int]) -> Packed:
    """Pack a bigint[]."""
    return _packed(_BIGINT, len(values), [_bigint(8, value) for value in values])


def ints(values: Sequence[int]) -> Packed:
    """Pack an int[]."""
    return _packed(_INT, len(values), [_int(4, value) for value in values])


def uuids(values: Sequence[UUID]) -> Packed:
    """Pack a uuid[]."""
    return _packed(_UUID, len(values), [b"\0\0\0\x10" + value.bytes for value in values])


def texts(values: Sequence[str]) -> Packed:
    """Pack a text[]."""
    return _of_bytes(_TEXT, [value.encode() for value in values])


def blobs(values: Sequence[bytes]) -> Packed:
    """Pack a bytea[]."""
    return _of_bytes(_BYTEA, values)


def _of_bytes(kind: int, values: Sequence[bytes]) -> Packed:
    parts: list[bytes] = []
    for value in values:
        parts += (_length(len(value)), value)
    return _packed(kind, len(values), parts)


def _packed(kind: int, count: int, parts: Sequence[bytes]) -> Packed:
    """Put the head before what is in an array: one dimension, no NULL, its type, its length."""
    if not count:
        return Packed(_no_head(0, 0, kind))
    return Packed(b"".join((_head(1, 0, kind, count, 1), *parts)))
