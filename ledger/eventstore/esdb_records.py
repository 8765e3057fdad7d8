"""How our records look in EventStoreDB: the event's data as it is, the rest in its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from esdbclient import NewEvent as Proposed
from esdbclient import RecordedEvent as Read

from ledger.eventstore import chain
from ledger.eventstore.esdb_tails import End
from ledger.eventstore.port import (
    START,
    ChainReport,
    NewEvent,
    Position,
    Recorded,
    StoreError,
)


class _Envelope(msgspec.Struct):
    """The metadata of one event. `meta` stays the bytes that were hashed."""

    schema_version: int
    previous: str
    hash: str
    meta: msgspec.Raw


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Envelope)


class ForeignEvent(StoreError):
    """An event in the database was not written by this product. Give it a database of its own."""


@dataclass(frozen=True, slots=True)
class Chained:
    """An event ready to be sent, and the hash that the next one continues."""

    proposed: Proposed
    hash: bytes


def chained(
    stream: str, end: End, events: Sequence[NewEvent], data: Sequence[bytes], meta: bytes
) -> list[Chained]:
    """Tie new events to the end of their stream."""
    links: list[Chained] = []
    previous = end.hash
    for version, (new, each) in enumerate(zip(events, data, strict=True), start=end.version + 1):
        kind = new.event
        digest = chain.link(
            previous,
            position=version,  # its place in the chain: of the store it is not known beforehand
            stream=stream,
            version=version,
            event_id=new.id,
            type_name=kind.name,
            schema_version=kind.schema_version,
            meta=meta,
            data=each,
        )
        envelope = _Envelope(kind.schema_version, previous.hex(), digest.hex(), msgspec.Raw(meta))
        proposed = Proposed(
            id=new.id, type=kind.name, data=each, metadata=_encoder.encode(envelope)
        )
        links.append(Chained(proposed, digest))
        previous = digest
    return links


def opened(read: Read) -> Recorded:
    """Return an event as the port gives it.

    Raises: ForeignEvent.
    """
    envelope = _envelope(read)
    assert read.commit_position is not None, "EventStoreDB 22.10 or later gives positions"
    assert read.recorded_at is not None, "every server says when it recorded an event"
    return Recorded(
        position=Position(read.commit_position),
        stream=read.stream_name,
        version=read.stream_position + 1,
        id=read.id,
        type=read.type,
        schema_version=envelope.schema_version,
        data=read.data,
        meta_data=bytes(envelope.meta),
        recorded_at=read.recorded_at,
        hash=bytes.fromhex(envelope.hash),
    )


def type_pattern(only: frozenset[str]) -> str:
    """Return one pattern for these event types.

    One, because the client anchors only the first alternative's start and the last one's end.
    """
    return f"(?:{'|'.join(re.escape(name) for name in sorted(only))})"


def walk(log: Iterable[Read]) -> ChainReport:
    """Recompute every hash, in position order; each stream is a chain of its own.

    What no chain of this kind shows is a stream cut off at its end, or removed whole.
    """
    ends: dict[str, tuple[int, bytes]] = {}
    checked, head = 0, START
    for read in log:
        version, previous = ends.get(read.stream_name, (0, chain.GENESIS))
        try:
            recorded = opened(read)
            expected_previous = bytes.fromhex(_envelope(read).previous)
        except (ForeignEvent, ValueError):
            return _broken(checked, head, read, "its metadata is not ours")
        if recorded.version != version + 1 or expected_previous != previous:
            return _broken(checked, head, read, "the record before it is missing or was changed")
        digest = chain.link(
            previous,
            position=recorded.version,
            stream=recorded.stream,
            version=recorded.version,
            event_id=recorded.id,
            type_name=recorded.type,
            schema_version=recorded.schema_version,
            meta=recorded.meta_data,
            data=recorded.data,
        )
        if digest != recorded.hash:
            return _broken(checked, head, read, "it was changed")
        ends[recorded.stream] = (recorded.version, digest)
        checked, head = checked + 1, recorded.position
    return ChainReport(checked, head)


def _broken(checked: int, head: Position, read: Read, detail: str) -> ChainReport:
    place = f"{read.stream_name} version {read.stream_position + 1}: {detail}"
    return ChainReport(checked, head, Position(read.commit_position or 0), place)


def _envelope(read: Read) -> _Envelope:
    try:
        return _decoder.decode(read.metadata)
    except msgspec.MsgspecError as unreadable:
        raise ForeignEvent(f"{read.type} in {read.stream_name}: {unreadable}") from unreadable
