"""Batches of samples in, exactly once.

Which numbers of a run were taken is one locked row, and it moves on in the transaction that stores
the samples, so that a crash between claim and write cannot happen, and a resend changes nothing.
The same number with another content is refused whole and raises an alarm, because one of the two is
wrong and nobody knows which. What comes at the same moment is stored in one transaction; a batch
that is refused is refused alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection, transaction

from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore.port import EventStore
from metering.agent.wire import SampleBatch
from metering.domain.instants import millis_down
from metering.ingest.grants import Grants, LeaseNotHere
from metering.ingest.rows import Row, rows_of
from metering.ingest.storing import SampleConflict, Sent, put

AHEAD_MAX_MS = 60_000
"""How far a host's clock may run ahead of the server's."""

__all__ = [
    "SampleBeforeLease",
    "SampleConflict",
    "SampleTooEarly",
    "Sent",
    "take_samples",
    "take_together",
]


class SampleTooEarly(Refusal):
    """The interval ends in the future: the host's clock runs ahead.

    Set the host's clock; the batch is taken when its time has come.
    """

    # Not refused for good: an agent keeps what is too early, and gives up what is wrong.
    status = 425


class SampleBeforeLease(Invalid):
    """The interval ends before its lease starts."""


def take_samples(
    store: EventStore,
    grants: Grants,
    batch: SampleBatch,
    *,
    host_id: HostId,
    tenant_id: TenantId,
    now: datetime,
) -> int:
    """Store a batch of one host, all or nothing.

    Returns: the number up to which everything of this boot is stored; 0 for an empty batch.
    Raises: LeaseNotHere, SampleTooEarly, SampleBeforeLease, SampleConflict.
    """
    sent = Sent(
        host_id=host_id,
        tenant_id=tenant_id,
        boot_id=batch.boot_id,
        rows=rows_of(batch.batch),
        health=batch.health,
    )
    [answer] = take_together(store, grants, [sent], now=now)
    if isinstance(answer, Refusal):
        raise answer
    return answer


def take_together(
    store: EventStore, grants: Grants, sent: Sequence[Sent], *, now: datetime
) -> list[int | Refusal]:
    """Store batches in one transaction, each of them all or nothing.

    Returns: for each the number up to which everything of its boot is stored, or why it is refused:
        LeaseNotHere, SampleTooEarly, SampleBeforeLease, SampleConflict.
    """
    answers: dict[int, int | Refusal] = {}
    for at, each in enumerate(sent):
        try:
            _check(store, grants, each.rows, host_id=each.host_id, now=now)
        except Refusal as refusal:
            answers[at] = refusal
        if not each.last():
            answers.setdefault(at, 0)
    left = [at for at in range(len(sent)) if at not in answers]
    while left:
        # Two batches of one run are taken one after the other.
        turn = list({sent[at].run: at for at in reversed(left)}.values())
        with transaction.atomic(), connection.cursor() as cursor:
            refused = put(cursor, [sent[at] for at in turn], now)
        for at, why in zip(turn, refused, strict=True):
            answers[at] = sent[at].last() if why is None else why
        left = [at for at in left if at not in answers]
    return [answers[at] for at in range(len(sent))]


def _check(
    store: EventStore, grants: Grants, rows: Sequence[Row], *, host_id: HostId, now: datetime
) -> None:
    """Refuse what may not be sent. One look at each lease, GPU and end; rows only if one is off."""
    if not rows:
        return
    _, leases, gpus, _, ends, *_ = zip(*rows, strict=True)
    latest_ms, first_ms = millis_down(now) + AHEAD_MAX_MS, min(ends)
    pairs = set(zip(leases, gpus, strict=True))
    found = {lease_id: grants.of(store, LeaseId(lease_id)) for lease_id in dict.fromkeys(leases)}
    if (
        max(ends) <= latest_ms
        and all(gpu_uuid in found[lease_id].on(host_id) for lease_id, gpu_uuid in pairs)
        and all(first_ms > grant.starts_ms for grant in found.values())
    ):
        return
    for seq, lease_id, gpu_uuid, _, end_ms, *_ in rows:
        grant = found[lease_id]
        if gpu_uuid not in grant.on(host_id):
            raise LeaseNotHere(lease_id=lease_id, gpu_uuid=gpu_uuid, seq=seq)
        if end_ms > latest_ms:
            raise SampleTooEarly(seq=seq, end_ms=end_ms, server_time=now)
        if end_ms <= grant.starts_ms:
            raise SampleBeforeLease(seq=seq, end_ms=end_ms, starts_ms=grant.starts_ms)
