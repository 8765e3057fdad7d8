"""Who gives way to a bid that finds no room: interruptible leases, or work that may be paused.

Work that is interruptible from its start, and bids little, is to fill what nobody else wants. So it
goes first where that costs the bid no more than a pause and lets it begin no later. Else work is
paused, which harms nobody for good.
"""

from __future__ import annotations

from collections.abc import Collection

from ledger.domain.ids import LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.preemption.interrupt import Plan, plan_for
from marketplace.domain.preemption.pause import pause_for


def pause_or_instead(
    book: Book,
    bid: OpenBid,
    *,
    now: int,
    calendar: Calendar | None = None,
    spared: Collection[LeaseId] = (),
) -> Plan | None:
    """Plan whose work to pause for a bid, or what to interrupt instead; None: nothing is paused.

    Args: as of `pause_for`.
    """
    pausing = pause_for(book, bid, now=now, calendar=calendar, spared=spared)
    if pausing is None or bid.terms.service_class == "interruptible":
        return pausing
    if not book.leases.interruptible:
        return pausing
    instead = plan_for(book, bid, now=now, calendar=calendar, spared=spared)
    if instead is None or instead.price > pausing.price:
        return pausing
    return instead if instead.placement.starts <= pausing.placement.starts else pausing
