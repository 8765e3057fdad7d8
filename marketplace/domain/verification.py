"""Prove a round sound before it is appended, by code that shares nothing with what cleared it.

It reads the terms as owners and bidders published them and the calendar as it stood, and works out
for each grant of the round whether it may be. A round with a fault is not appended: whatever the
search did, nobody can be leased a GPU twice or pay more than their limit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, takewhile

from ledger.domain.money import MILLIS_PER_HOUR
from listings.domain.events import Gpu, OfferPublished
from listings.domain.gpus import model_matches
from listings.domain.windows import windows_of
from marketplace.domain.book import Book
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import GpuRequest, LeaseGranted, RoundCleared, Share
from marketplace.domain.moments import EPOCH, ONE_MILLI, moment
from marketplace.domain.query import ISOLATIONS
from marketplace.domain.supply import Listed
from marketplace.domain.workloads import allowed_by


def faults(book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]) -> list[str]:
    """Return what is wrong with a round, in sentences; empty: it may be appended.

    Args:
        book: as it was before the round.
    """
    found = [fault for granted in grants for fault in _faults_of(book, granted)]
    found += _twice(book, grants)
    found += _sums(book, cleared, grants)
    return found


def _faults_of(book: Book, granted: LeaseGranted) -> Iterator[str]:
    name = f"lease {granted.lease_id}"
    bid = book.bids.get(granted.bid_id)
    if bid is None:
        yield f"{name}: bid {granted.bid_id} is not open"
        return
    terms, window = bid.terms, granted.window
    uuids = [uuid for share in granted.shares for uuid in share.gpu_uuids]
    lasts = window.ends_at - window.starts_at
    if len(set(uuids)) != len(uuids) or not (
        (terms.gpus_min or terms.gpus) <= len(uuids) <= terms.gpus
    ):
        yield f"{name}: {len(set(uuids))} GPUs for a bid of {terms.gpus}"
    shortest = terms.duration_min_seconds or terms.duration_seconds
    if not timedelta(seconds=shortest) <= lasts <= timedelta(seconds=terms.duration_seconds):
        yield f"{name}: lasts {lasts}"
    if window.starts_at < max(terms.earliest_start, granted.at):
        yield f"{name}: starts too early, {window.starts_at}"
    if window.ends_at > moment(bid.deadline):
        yield f"{name}: ends after the bid's deadline, {window.ends_at}"
    price = granted.price.nanos_per_gpu_hour
    if price > bid.rate or granted.price.currency != terms.limit.currency:
        yield f"{name}: price {price} above limit {bid.rate}"
    cost = granted.price.charge(len(uuids) * (lasts // ONE_MILLI))
    if terms.budget is not None and cost > terms.budget:
        yield f"{name}: costs {cost}, over the budget {terms.budget}"
    if terms.good_until is not None and granted.at > terms.good_until:
        yield f"{name}: granted after {terms.good_until}"
    if terms.placement == "same-host" and len({share.host_id for share in granted.shares}) != 1:
        yield f"{name}: over several hosts"
    for share in granted.shares:
        listed = book.offers.get(share.offer_id)
        if listed is None or listed.paused:
            yield f"{name}: offer {share.offer_id} is not listed"
            continue
        yield from (f"{name}: {fault}" for fault in _terms(listed, share, granted, bid))
    if terms.request.nvlink:
        yield from (f"{name}: {fault}" for fault in _links(book, granted))


def _terms(listed: Listed, share: Share, granted: LeaseGranted, bid: OpenBid) -> Iterator[str]:
    offer, terms = listed.terms, bid.terms
    gpus = {gpu.uuid: gpu for gpu in offer.gpus}
    strangers = [uuid for uuid in share.gpu_uuids if uuid not in gpus]
    if strangers or (share.host_id, share.owner_id) != (offer.host_id, offer.tenant_id):
        yield f"offer {offer.offer_id} has no {strangers} on {share.host_id}"
    if offer.reserved_for not in (None, bid.bid_id):
        yield f"offer {offer.offer_id} is kept for another bid"
    asked = terms.request
    if asked.own and offer.tenant_id != terms.tenant_id:
        yield f"offer {offer.offer_id} is not the bidder's own"
    if offer.host_id in asked.not_hosts or (asked.hosts and offer.host_id not in asked.hosts):
        yield f"host {offer.host_id} was left out by the bid"
    if timedelta(seconds=offer.lease_min_seconds) > granted.window.length:
        yield f"offer {offer.offer_id} is leased for longer only"
    if not allowed_by(offer.workload_kinds, terms.workload.kind):
        yield f"offer {offer.offer_id} does not allow {terms.workload.kind}"
    if listed.floor > granted.price.nanos_per_gpu_hour:
        yield f"price below the floor {listed.floor} of offer {offer.offer_id}"
    if offer.floor.currency != granted.price.currency:
        yield f"offer {offer.offer_id} is in {offer.floor.currency}"
    if (share.notice_seconds, share.reclaim_fee_ppm, share.reclaim_steps) != (
        offer.notice_seconds,
        offer.reclaim_fee_ppm,
        offer.reclaim_steps,
    ):
        yield f"offer {offer.offer_id} was listed on other terms of reclaim"
    if not _in_windows(offer, granted.window.starts_at, granted.window.ends_at):
        yield f"offer {offer.offer_id} has no window for {granted.window}"
    for uuid in share.gpu_uuids:
        if uuid in gpus and not _serves(gpus[uuid], offer, terms.request):
            yield f"GPU {uuid} is not what was asked for"


def _in_windows(offer: OfferPublished, starts_at: datetime, ends_at: datetime) -> bool:
    """Tell if windows of the offer cover the span without a hole."""
    covered = starts_at
    for window in sorted(
        windows_of(offer, since=starts_at, until=ends_at), key=lambda each: each.starts_at
    ):
        if window.starts_at > covered:
            return False
        covered = max(covered, window.ends_at)
    return covered >= ends_at


def _serves(gpu: Gpu, offer: OfferPublished, asked: GpuRequest) -> bool:
    capability = [int(part) for part in gpu.compute_capability.split(".")]
    wanted = [int(part) for part in (asked.compute_capability_min or "0").split(".")]
    region = asked.region
    return (
        (not asked.models or any(model_matches(model, gpu.model) for model in asked.models))
        and gpu.memory_mib >= (asked.memory_mib_min or 0)
        and capability >= wanted
        and _numbers(gpu.driver) >= _numbers(asked.driver_min or "")
        and (region is None or f"{offer.region}-".startswith(f"{region}-"))
        and all(label in offer.labels for label in asked.labels)
        and (
            asked.isolation is None
            or offer.isolation in ISOLATIONS[: ISOLATIONS.index(asked.isolation) + 1]
        )
    )


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version, up to the first part that is none."""
    return [int(part) for part in takewhile(str.isdecimal, version.split("."))]


def _links(book: Book, granted: LeaseGranted) -> Iterator[str]:
    groups: dict[object, set[str | None]] = defaultdict(set)
    for share in granted.shares:
        offer = book.offers[share.offer_id].terms
        groups[share.host_id] |= {
            gpu.nvlink_group for gpu in offer.gpus if gpu.uuid in share.gpu_uuids
        }
    for host_id, names in groups.items():
        if None in names or len(names) > 1:
            yield f"GPUs on {host_id} are not joined by NVLink"
    least = book.bids[granted.bid_id].terms.request.nvlink_min or 0
    for share in granted.shares:
        joined = Counter(gpu.nvlink_group for gpu in book.offers[share.offer_id].terms.gpus)
        if any(joined[name] < least for name in groups[share.host_id]):
            yield f"fewer than {least} GPUs on {share.host_id} are joined by NVLink"


def _twice(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[str]:
    """Find GPUs that two hold at one instant, and bids that were granted twice."""
    spans: dict[str, list[tuple[int, int, object]]] = defaultdict(list)
    for granted in grants:
        starts = -((EPOCH - granted.window.starts_at) // ONE_MILLI)
        ends = -((EPOCH - granted.window.ends_at) // ONE_MILLI)
        for share in granted.shares:
            for uuid in share.gpu_uuids:
                spans[uuid].append((starts, ends, granted.lease_id))
    for uuid, taken in spans.items():
        taken += [(span.starts, span.ends, span.lease_id) for span in book.calendar.of(uuid)]
        taken.sort(key=lambda span: span[:2])
        for earlier, later in pairwise(taken):
            if later[0] < earlier[1]:
                yield f"GPU {uuid} is held twice: {earlier[2]} and {later[2]}"
    seen = set[object]()
    for granted in grants:
        if granted.bid_id in seen:
            yield f"bid {granted.bid_id} is granted twice"
        seen.add(granted.bid_id)


def _sums(book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]) -> Iterator[str]:
    """Compare what the round says of itself with what its grants add up to."""
    prices = [granted.price.nanos_per_gpu_hour for granted in grants]
    gpus = sum(len(share.gpu_uuids) for granted in grants for share in granted.shares)
    told = (cleared.grants, cleared.gpus, cleared.price_low, cleared.price_high)
    summed = (len(grants), gpus, min(prices, default=0), max(prices, default=0))
    if told != summed:
        yield f"the round says {told}, its grants say {summed}"
    certificate = cleared.certificate
    if certificate is None:
        yield "the round has no certificate"
        return
    welfare = sum(_worth(book, granted) for granted in grants)
    if welfare != certificate.welfare_nanos:
        yield f"the round is worth {welfare}, not {certificate.welfare_nanos}"
    if certificate.bound_nanos < welfare:
        yield f"the bound {certificate.bound_nanos} is below the welfare {welfare}"


def _worth(book: Book, granted: LeaseGranted) -> int:
    """Return (limit − floor) × GPU-time of one grant in nano-units, rounded down."""
    bid = book.bids.get(granted.bid_id)
    if bid is None:
        return 0
    millis = (granted.window.ends_at - granted.window.starts_at) // ONE_MILLI
    limit, budget = bid.rate, bid.terms.budget
    if budget is not None:
        use = millis * sum(len(share.gpu_uuids) for share in granted.shares)
        limit = min(limit, ((budget.nanos + 1) * MILLIS_PER_HOUR - 1) // use)
    value = sum(
        (limit - book.offers[share.offer_id].floor) * len(share.gpu_uuids)
        for share in granted.shares
        if share.offer_id in book.offers
    )
    return value * millis // MILLIS_PER_HOUR
