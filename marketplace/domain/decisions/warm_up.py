"""Call the kernels of the instant lane as bids and offers do, so that they are compiled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, BidId, HoldId, HostId, OfferId, SubscriberId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from listings.domain.events import Gpu, OfferPublished
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts.events import BidPlaced, GpuRequest, MarketEvent, Placement, Workload
from marketplace.domain.facts.instants import from_above

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOBODY, SOMEBODY = UUID(int=0), UUID(int=1)


def rehearse() -> list[MarketEvent]:
    """Decide on a market that is made up: bids that find nothing, then an offer, then one more.

    One of the bids may go to several hosts, so that it is not placed with the others.
    """
    book, decided = Book("rehearsal"), list[MarketEvent]()
    facts: tuple[Event, ...] = (_bid(1, "any-hosts"), _bid(2, "same-host"), _offer(), _bid(3))
    for position, fact in enumerate(facts, 1):
        trigger = book.apply(fact, position)
        assert trigger is not None
        now, round_id = from_above(NOON), UUID(int=position)
        events = on_fact(book, trigger, now=now, round_id=round_id)
        book.decided(events, position)
        decided += events
    book.queue.renumber()  # which joins the stretches of every group
    return decided


def _bid(number: int, placement: Placement = "same-host") -> BidPlaced:
    return BidPlaced(
        bid_id=BidId(UUID(int=number)),
        tenant_id=TenantId(NOBODY),
        subscriber_id=SubscriberId(NOBODY),
        user_id=None,
        account_id=AccountId(NOBODY),
        hold_id=HoldId(UUID(int=number)),
        market="rehearsal",
        request=GpuRequest(),
        gpus=1,
        placement=placement,
        duration_seconds=3_600,
        earliest_start=NOON,
        deadline=NOON + 2 * HOUR,
        limit=Rate(2),
        service_class="on-demand",
        patience="immediate",
        workload=Workload("rehearsal"),
        cost_centre="",
        burst_allowed=False,
        at=NOON,
    )


def _offer() -> OfferPublished:
    gpus = tuple(
        Gpu(
            uuid=f"rehearsal-{number}",
            model="rehearsal",
            memory_mib=1,
            compute_capability="1.0",
            driver="1",
        )
        for number in range(2)
    )
    return OfferPublished(
        offer_id=OfferId(SOMEBODY),
        tenant_id=TenantId(SOMEBODY),
        host_id=HostId(SOMEBODY),
        market="rehearsal",
        region="",
        labels=(),
        gpus=gpus,
        windows=(Window(NOON, NOON + 2 * HOUR),),
        weekly=None,
        floor=Rate(1),
        lease_min_seconds=60,
        notice_seconds=60,
        reclaim_fee_ppm=0,
        workload_kinds=(),
        isolation="whole",
        source="local",
        reserved_for=None,
        at=NOON,
    )
