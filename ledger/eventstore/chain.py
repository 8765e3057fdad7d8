"""The hash chain: each record's hash covers the one before it, so no change goes unseen."""

from __future__ import annotations

import hashlib
from uuid import UUID

GENESIS = bytes(32)


def link(
    previous: bytes,
    *,
    position: int,
    stream: str,
    version: int,
    event_id: UUID,
    type_name: str,
    schema_version: int,
    meta: bytes,
    data: bytes,
) -> bytes:
    """Return the sha256 that ties a record to the record before it.

    Every field is preceded by its length in bytes as eight big-endian bytes, so that no two
    different records hash alike by moving bytes from one field to the next. The PostgreSQL
    function `es_append` computes the same.
    """
    fields = (
        str(position).encode(),
        stream.encode(),
        str(version).encode(),
        str(event_id).encode(),
        type_name.encode(),
        str(schema_version).encode(),
        meta,
        data,
    )
    digest = hashlib.sha256(previous)
    for field in fields:
        digest.update(len(field).to_bytes(8, "big"))
        digest.update(field)
    return digest.digest()
