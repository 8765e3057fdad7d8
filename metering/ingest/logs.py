"""What agents send of their work's output: taken piece by piece, each where its log ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

from ledger.domain.ids import HostId, LeaseId
from ledger.eventstore.port import EventStore
from marketplace.logs import begin_log
from marketplace.storage.logs import LogKey, OpenLogs
from metering.agent.later import Beyond
from metering.agent.wire import (
    LogBatch,
    LogOutcome,
    LogPiece,
    LogPieceTaken,
    LogsTaken,
    Stream,
    WireError,
)
from metering.commands import terms_of_lease
from metering.ingest.grants import Grants, LeaseNotHere

_NEEDED = ("lease_id", "attempt", "stream", "offset", "data")


def take_logs(
    store: EventStore,
    grants: Grants,
    logs: OpenLogs,
    batch: LogBatch,
    *,
    host_id: HostId,
    now: datetime,
) -> LogsTaken:
    """Add to the logs of a host's leases; say of each piece how far its log is.

    A lease of another host is refused by piece, so that the others of the message are taken.

    Raises: LeaseNotHere, where no piece is of a lease of this host; StorageFull, StorageAway.
    """
    taken = tuple(
        _take(store, grants, logs, piece, host_id=host_id, now=now) for piece in batch.pieces
    )
    if taken and all(each.outcome == "refused" for each in taken):
        raise LeaseNotHere(lease_id=taken[0].lease_id)
    return LogsTaken(pieces=taken)


def with_refused(taken: LogsTaken, beyond: Iterable[Beyond]) -> LogsTaken:
    """Return the answer with the pieces, in their places, that were set aside unread.

    They are of a stream that only an agent of a later version has.
    """
    pieces = list(taken.pieces)
    for each in beyond:
        if each.index is not None and isinstance(each.item, Mapping):
            known = {**each.item, "stream": "stdout"}
            try:
                piece = LogPiece.from_json({k: known[k] for k in _NEEDED if k in known})
            except WireError:
                continue
            refused = LogPieceTaken(
                lease_id=piece.lease_id,
                attempt=piece.attempt,
                stream=cast(Stream, each.item["stream"]),
                size=0,
                outcome="refused",
                followed=False,
            )
            pieces.insert(each.index, refused)
    return LogsTaken(pieces=tuple(pieces))


def _take(
    store: EventStore,
    grants: Grants,
    logs: OpenLogs,
    piece: LogPiece,
    *,
    host_id: HostId,
    now: datetime,
) -> LogPieceTaken:
    lease_id = LeaseId(piece.lease_id)
    outcome: LogOutcome = "refused"
    size = 0
    if _is_here(store, grants, lease_id, host_id):
        key = LogKey(lease_id, host_id, piece.attempt, piece.stream)
        content = piece.content
        said = {"skipped": piece.skipped, "ended": piece.ended}
        outcome, size = logs.append(key, piece.offset, content, **said)
        if outcome == "closed" and size == 0 and _begin(store, logs, key, now):
            outcome, size = logs.append(key, piece.offset, content, **said)
    return LogPieceTaken(
        lease_id=piece.lease_id,
        attempt=piece.attempt,
        stream=piece.stream,
        size=size,
        outcome=outcome,
        followed=logs.is_followed(piece.lease_id),
    )


def _is_here(store: EventStore, grants: Grants, lease_id: LeaseId, host_id: HostId) -> bool:
    try:
        return bool(grants.of(store, lease_id).on(host_id))
    except LeaseNotHere:
        return False


def _begin(store: EventStore, logs: OpenLogs, key: LogKey, now: datetime) -> bool:
    terms = terms_of_lease(store, LeaseId(key.lease_id))
    assert terms is not None  # it was granted to this host
    return begin_log(logs, key, terms.tenant_id, now=now)
