"""Whether a lease may go on in place: the engine's answer to an extension that was asked for."""

from __future__ import annotations

from ledger.domain.ids import BidId
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import ExtensionDeclined, ExtensionGranted, ExtensionRequested
from marketplace.domain.facts.instants import from_above, from_below, moment


def decide_extension(
    book: Book, asked: ExtensionRequested, *, now: int
) -> ExtensionGranted | ExtensionDeclined:
    """Let a lease go on in place, or say what stands in the way; it never moves.

    The time added must lie in a window of each of its offers, which must still be there and not
    cost more than the lease does, and the GPUs must be free.
    """
    reason = _in_the_way(book, asked, now)
    if reason is None:
        return ExtensionGranted(
            lease_id=asked.lease_id,
            market=book.market,
            ends_at=asked.ends_at,
            through=book.read_to,
            at=moment(now),
        )
    return ExtensionDeclined(
        lease_id=asked.lease_id,
        market=book.market,
        ends_at=asked.ends_at,
        reason=reason,
        through=book.read_to,
        at=moment(now),
    )


EXTENSION_REASONS: dict[str, str] = {
    "lease-over": "the lease is over",
    "reclaimed": "an owner is taking the capacity back",
    "not-later": "it ends no later than the lease does now",
    "offer-gone": "an offer it rests on was withdrawn or paused",
    "reserved": "an offer it rests on is kept for one bid",
    "windows": "an offer it rests on has no window that long",
    "price": "an offer it rests on now costs more than the lease pays",
    "health": "the host is silent, or a GPU of the lease has a fault",
    "taken": "others hold the GPUs then",
    "tenants": "another organisation's work is on the host then, which cannot keep it apart",
    "quota": "a quota or a limit leaves no room for it",
    "funds-insufficient": "the account does not have the money for it",
    "budget-spent": "the bid's budget does not cover it",
    "funds-taken-back": "a bank took the account's money back; then the work is paused",
    "funds-there-again": "the account has its money again",
}


def _in_the_way(book: Book, asked: ExtensionRequested, now: int) -> str | None:
    held = book.held.get(asked.lease_id)
    if held is None or held.ends < now:
        return "lease-over"
    if held.reclaimed_by is not None:
        return "reclaimed"
    ends = from_above(asked.ends_at)
    if ends <= held.ends:
        return "not-later"
    for share in held.granted.shares:
        listed = book.offers.get(share.offer_id)
        if listed is None or listed.paused:
            return "offer-gone"
        if not listed.open_to(BidId(held.granted.bid_id)):
            return "reserved"
        if not listed.covers(held.ends, from_below(asked.ends_at)):
            return "windows"
        if not held.granted.own and listed.floor > held.granted.price.nanos_per_gpu_hour:
            return "price"
        if not book.calendar.withheld.isdisjoint(share.gpu_uuids):
            return "health"
        if not all(
            book.calendar.is_free(uuid, held.ends, ends, cleaning=listed.cleaning)
            for uuid in share.gpu_uuids
        ):
            return "taken"
        tenant_id = None if held.bid is None else held.bid.tenant_id
        if book.calendar.meets_others(share.host_id, tenant_id, held.ends, ends):
            return "tenants"
    if book.quotas is not None and not book.quotas.extends(asked.lease_id, ends).fits:
        return "quota"
    return None
