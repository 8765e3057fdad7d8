"""Snapshots to bytes and back. What was written by other code is not read: it is made anew."""

from __future__ import annotations

import zlib
from hashlib import blake2b

import msgspec

from marketplace.domain.book.book import READS
from marketplace.domain.facts.events import ROUND_RULE, RULE
from marketplace.snapshots.port import Snapshot

SCHEMA = 2
"""Raise it when the same facts make another state although no field of it changed."""


def _form() -> str:
    schema = msgspec.json.encode(msgspec.json.schema(Snapshot), order="deterministic")
    parts = [str(SCHEMA), RULE, ROUND_RULE, *sorted(READS), schema.decode()]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


FORM = _form()
"""Names the fields of a snapshot, the facts that are read, and the rules: changes with any."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """Write a snapshot."""
    return zlib.compress(_encoder.encode(snapshot), level=1)


def decode(body: bytes) -> Snapshot:
    """Read what `encode` wrote under this `FORM`.

    Raises: zlib.error, msgspec.DecodeError.
    """
    return _decoder.decode(zlib.decompress(body))


def checksum(body: bytes) -> bytes:
    """Return 32 bytes that change with any bit of the body."""
    return blake2b(body, digest_size=32).digest()
