"""An event of ordinary size for the benchmarks, and ways to write many of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from django.db import connection

from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore import chain, codec
from ledger.eventstore.port import Meta, NewEvent
from listings.domain.events import Gpu, OfferPublished, OfferRepriced

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
BY = Meta(actor="user:bench", command_id=UUID(int=7), correlation_id=UUID(int=8))


def repriced(offer: int, nanos: int) -> OfferRepriced:
    """Return a small event of one of the offers."""
    return OfferRepriced(offer_id=OfferId(UUID(int=offer)), floor=Rate(nanos), at=NOON)


def published(offer: int) -> OfferPublished:
    """Return an event of some 900 bytes: the first of an offer's stream."""
    gpu = Gpu(f"GPU-{offer:032x}", "H100", 81_559, "9.0", "570.86")
    return OfferPublished(
        offer_id=OfferId(UUID(int=offer)),
        tenant_id=TenantId(UUID(int=1)),
        host_id=HostId(UUID(int=offer)),
        market="main",
        region="eu",
        labels=(),
        gpus=(gpu,),
        windows=(Window(NOON, NOON + timedelta(hours=8)),),
        weekly=None,
        floor=Rate(1_500_000_000),
        lease_min_seconds=900,
        notice_seconds=900,
        reclaim_fee_ppm=0,
        workload_kinds=(),
        isolation="whole",
        source="local",
        reserved_for=None,
        at=NOON,
    )


def fresh(events: Sequence[OfferPublished | OfferRepriced]) -> list[NewEvent]:
    """Give events new ids."""
    return [NewEvent(uuid4(), event) for event in events]


def copy_history(offers: int, repricings: int) -> int:
    """Write `offers` streams of 1 + `repricings` events by COPY, chained; return how many.

    Past `append`, since a million single appends are not what is measured here.
    """
    meta, previous, position = codec.encode(BY), chain.GENESIS, 0
    with connection.cursor() as cursor:
        copy_sql = (
            "COPY es_event (position, stream, version, event_id, type, schema_version, data, meta,"
            " recorded_at, hash) FROM STDIN"
        )
        with cursor.cursor.copy(copy_sql) as copy:
            for version in range(1, repricings + 2):
                for offer in range(offers):
                    event = published(offer) if version == 1 else repriced(offer, version)
                    position += 1
                    event_id, data = uuid4(), codec.encode(event)
                    previous = chain.link(
                        previous,
                        position=position,
                        stream=f"offer-{UUID(int=offer)}",
                        version=version,
                        event_id=event_id,
                        type_name=event.name,
                        schema_version=event.schema_version,
                        meta=meta,
                        data=data,
                    )
                    copy.write_row(
                        (
                            position,
                            f"offer-{UUID(int=offer)}",
                            version,
                            event_id,
                            event.name,
                            event.schema_version,
                            data,
                            meta,
                            NOON,
                            previous,
                        )
                    )
        cursor.execute("ANALYZE es_event")
    return position
