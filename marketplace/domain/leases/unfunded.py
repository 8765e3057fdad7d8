"""Work whose money is gone: a payer's bank took it back, and its account fell too far below zero.

What a lease set aside is not there any more. Work that saves itself is told and asked to save, and
is paused after a notice and its grace; where money comes by then it goes on. Other work ends with
its granted time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.money_waits import goes_on_with_money
from marketplace.domain.facts.close_reasons import (
    FUNDS_BACK,
    FUNDS_TAKEN,
    MONEY_TAKEN,
    WITHOUT_MONEY,
)
from marketplace.domain.facts.events import ExtensionRefused, LeaseEnding, LeaseEvent
from marketplace.domain.leases.lease import Lease

NOTICE = timedelta(minutes=20)
"""So long money may come after the work was told, and its grace besides."""


def pause_without_money(lease: Lease, bid: Bid, *, now: datetime) -> list[LeaseEvent]:
    """Decide what is next for work whose money is gone: told once, then asked to stop.

    Nothing for work that stops by then anyway, or that could not go on later.
    """
    refused = lease.extension_refused
    if lease.state != "active" or lease.stop_at is not None or not goes_on_with_money(bid):
        return []
    if refused is not None and refused.reason == FUNDS_TAKEN:
        if now < refused.ends_at:
            return []
        return [LeaseEnding(lease_id=lease.terms.lease_id, reason=MONEY_TAKEN, at=now)]
    stops_at = now + NOTICE + lease.grace
    told = refused is not None and refused.reason in WITHOUT_MONEY
    if told or stops_at >= lease.ends_at:
        return []
    return [_said(lease, FUNDS_TAKEN, ends_at=stops_at, pausing=True, now=now)]


def go_on_as_before(lease: Lease, *, now: datetime) -> list[LeaseEvent]:
    """Decide that work goes on whose money came back before it was paused."""
    refused = lease.extension_refused
    if lease.state != "active" or refused is None or refused.reason != FUNDS_TAKEN:
        return []
    return [_said(lease, FUNDS_BACK, ends_at=lease.ends_at, pausing=False, now=now)]


def _said(
    lease: Lease, reason: str, *, ends_at: datetime, pausing: bool, now: datetime
) -> ExtensionRefused:
    return ExtensionRefused(
        lease_id=lease.terms.lease_id,
        market=lease.terms.market,
        ends_at=ends_at,
        reason=reason,
        at=now,
        pausing=pausing,
    )
