"""Prove that an offer gives to a grant what was asked for, on the terms of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile

from listings.domain.divisions import PPM, compute_ppm
from listings.domain.events import Gpu, OfferPublished
from listings.domain.gpus import is_of, model_matches, names_share
from listings.domain.sandboxes import IMAGES_ONLY, LEVELS, AgentSays
from listings.domain.sla_events import SlaTerms
from listings.domain.windows import windows_of
from marketplace.domain.bids.query_language import ISOLATIONS
from marketplace.domain.bids.workload_profiles import allowed_by
from marketplace.domain.facts.events import GpuRequest, LeaseGranted, Share
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid


def own_use(granted: LeaseGranted, bid: OpenBid) -> bool:
    """Tell if all GPUs are the bidder's own, which it has for nothing."""
    return all(share.owner_id == bid.terms.tenant_id for share in granted.shares)


def terms_of(
    listed: Listed,
    says: AgentSays,
    promised: SlaTerms | None,
    share: Share,
    granted: LeaseGranted,
    bid: OpenBid,
) -> Iterator[str]:
    """Find what an offer's terms, or the bid's, have against what it gives to a grant.

    says: what the agent of its host says of itself. promised: what its owner does of its service.
    """
    offer, terms = listed.terms, bid.terms
    gpus = {gpu.uuid: gpu for gpu in offer.gpus}
    strangers = [uuid for uuid in share.gpu_uuids if uuid not in gpus]
    if strangers or (share.host_id, share.owner_id) != (offer.host_id, offer.tenant_id):
        yield f"offer {offer.offer_id} has no {strangers} on {share.host_id}"
    if offer.reserved_for not in (None, bid.bid_id):
        yield f"offer {offer.offer_id} is kept for another bid"
    yield from _choices(listed, share, bid)
    yield from _service(None if share.resold is not None else promised, share, bid)
    if timedelta(seconds=offer.lease_min_seconds) > granted.window.length:
        yield f"offer {offer.offer_id} is leased for longer only"
    if not allowed_by(offer.workload_kinds, terms.workload.kind):
        yield f"offer {offer.offer_id} does not allow {terms.workload.kind}"
    price = granted.price.nanos_per_gpu_hour
    if not own_use(granted, bid) and share.resold is None and listed.floor > price:
        yield f"price below the floor {listed.floor} of offer {offer.offer_id}"
    if offer.floor.currency != granted.price.currency:
        yield f"offer {offer.offer_id} is in {offer.floor.currency}"
    names = ("notice_seconds", "grace_seconds", "reclaim_fee_ppm", "reclaim_steps", "source")
    same = all(getattr(share, name) == getattr(offer, name) for name in names)
    if share.resold is None and not same:
        yield f"offer {offer.offer_id} was listed on other terms of reclaim"
    if not _in_windows(offer, granted.window.starts_at, granted.window.ends_at):
        yield f"offer {offer.offer_id} has no window for {granted.window}"
    yield from _host_does(says, offer, bid)
    for uuid in share.gpu_uuids:
        if uuid in gpus and not _serves(gpus[uuid], offer, terms.request, terms.gpus):
            yield f"GPU {uuid} is not what was asked for"


def _host_does(says: AgentSays, offer: OfferPublished, bid: OpenBid) -> Iterator[str]:
    """Find what the host's agent does not do of what the bid's work needs."""
    work, asked = bid.terms.workload, bid.terms.request.sandbox_min
    wanted = {
        "files": getattr(work, "inputs", None) or getattr(work, "outputs", None),
        "secrets": getattr(work, "secrets", None) or getattr(work, "fetch_secret", None),
        "podman": getattr(work, "image", None),
        "access": getattr(work, "access", None),
        "volumes": getattr(work, "volumes", None),
        "fetch": getattr(work, "fetch", None),
    }
    for word, wants in wanted.items():
        if wants and word not in says.abilities:
            yield f"host {offer.host_id} cannot do {word}"
    if IMAGES_ONLY in says.abilities and not wanted["podman"]:
        yield f"host {offer.host_id} runs images only"
    network = bid.terms.request.network
    if network is not None and "network-" + network not in says.abilities:
        yield f"host {offer.host_id} does not give work the network {network}"
    if network == "none" and offer.isolation == "mps":
        yield f"offer {offer.offer_id} is shares by MPS, which have the host's network"
    level = "container" if wanted["podman"] else says.sandbox
    if offer.isolation == "mps" and level in LEVELS[LEVELS.index("process") : -1]:
        level = "account"
    if asked is not None and level not in LEVELS[LEVELS.index(asked) :]:
        yield f"host {offer.host_id} keeps work apart less than {asked}"


def _choices(listed: Listed, share: Share, bid: OpenBid) -> Iterator[str]:
    """Find what the bid has against the host, its owner, and what they promise."""
    offer, terms = listed.terms, bid.terms
    asked = terms.request
    if asked.own and offer.tenant_id != terms.tenant_id:
        yield f"offer {offer.offer_id} is not the bidder's own"
    if offer.host_id in asked.not_hosts or (asked.hosts and offer.host_id not in asked.hosts):
        yield f"host {offer.host_id} was left out by the bid"
    least_notice, least_fee = asked.notice_seconds_min or 0, asked.reclaim_fee_ppm_min or 0
    promised = share.notice_seconds >= least_notice and share.reclaim_fee_ppm >= least_fee
    if asked.grace_seconds_min is not None and share.grace_seconds < asked.grace_seconds_min:
        promised = False
    if not promised and offer.tenant_id != terms.tenant_id:
        yield f"offer {offer.offer_id} promises less for a reclaim than was asked for"
    least = asked.reliability_min_ppm
    if least is not None and (listed.record.ppm is None or listed.record.ppm < least):
        yield f"host {offer.host_id} has not proved as reliable as that"


def _service(promised: SlaTerms | None, share: Share, bid: OpenBid) -> Iterator[str]:
    """Find what is promised too little of the service; the rest of a lease has no promise."""
    asked, promised = bid.terms.request, promised or SlaTerms()
    latest, start_by = asked.start_seconds_max, promised.start_by_seconds
    if latest is not None and (start_by is None or start_by > latest):
        yield f"offer {share.offer_id} promises no start within {latest} seconds"
    least = asked.availability_min_ppm
    if least is not None and all(step.below_ppm < least for step in promised.steps):
        yield f"offer {share.offer_id} promises no availability of {least} millionths"


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


def _serves(gpu: Gpu, offer: OfferPublished, asked: GpuRequest, gpus: int) -> bool:
    capability = _capability(gpu.compute_capability)
    wanted = _capability(asked.compute_capability_min or "0")
    return (
        (not asked.models or any(model_matches(model, gpu.model) for model in asked.models))
        and gpu.memory_mib >= (asked.memory_mib_min or 0)
        and capability >= wanted
        and _numbers(gpu.driver) >= _numbers(asked.driver_min or "")
        and (not asked.regions or _lies_in(offer.region, asked.regions))
        and all(label in offer.labels for label in asked.labels)
        and not _is_unwanted(gpu, offer, asked)
        and compute_ppm(gpu) * 100 >= (asked.compute_percent_min or 0) * PPM
        and (gpu.compute_percent is None or (gpus == 1 and _takes_share(gpu, asked)))
        and (
            asked.isolation is None
            or offer.isolation in ISOLATIONS[: ISOLATIONS.index(asked.isolation) + 1]
        )
    )


def _lies_in(region: str, areas: Iterable[str]) -> bool:
    return any(f"{region}-".startswith(f"{area}-") for area in areas)


def _is_unwanted(gpu: Gpu, offer: OfferPublished, asked: GpuRequest) -> bool:
    return (
        any(is_of(model, gpu.model) for model in asked.not_models)
        or _lies_in(offer.region, asked.not_regions)
        or any(label in offer.labels for label in asked.not_labels)
    )


def _takes_share(gpu: Gpu, asked: GpuRequest) -> bool:
    """Tell if a bid takes shares at all, or this one because it names it."""
    return asked.isolation is not None or any(
        names_share(model) and model_matches(model, gpu.model) for model in asked.models
    )


@lru_cache(maxsize=1_024)
def _capability(said: str) -> tuple[int, ...]:
    return tuple(int(part) for part in said.split("."))


@lru_cache(maxsize=1_024)
def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, up to the first part that is none."""
    return tuple(int(part) for part in takewhile(str.isdecimal, version.split(".")))
