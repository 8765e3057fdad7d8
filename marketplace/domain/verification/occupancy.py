"""Prove that a GPU has one lease at a time, is cleaned in between, and no card is overfilled.

A MIG instance or a share is a GPU of its own to the market, and its host lists only such that
exist beside each other. Here it is worked out anew for each instant: from the profiles of all
instances, or the sizes of all shares, of a card that anybody holds then, and from whether somebody
holds the card whole. An instance that the host's agent makes has its place in its UUID: no two may
share a slice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from ledger.domain.ids import LeaseId
from listings.domain.events import Gpu
from listings.domain.mig import card_of, coexist
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import EPOCH, ONE_MILLI, from_above, from_below, moment
from marketplace.domain.verification.cuts import ends_of

Span = tuple[datetime, datetime, int, timedelta, LeaseId | None]
"""From when, until when, which grant of the round (0: an older lease), how long its offer has the
GPU cleaned before it and after it (of an older one: nothing is asked any more), and whose."""


def held_spans(
    book: Book, uuid: str, ends_at: dict[LeaseId, datetime]
) -> Iterator[tuple[int, int, LeaseId | None]]:
    """Yield from when until when a GPU is held by older leases, and by which.

    ends_at: of those that the round cuts.
    """
    for starts, ends, lease_id in book.calendar.of(uuid):
        if lease_id in ends_at:
            ends = min(ends, from_above(ends_at[lease_id]))
        yield starts, ends, lease_id


def held_twice(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find GPUs that two hold at one instant, and bids that were granted twice."""
    ends_at = ends_of(grants)
    spans: dict[str, list[tuple[int, int, int, LeaseId | None]]] = defaultdict(list)
    seen = set[object]()
    for number, granted in enumerate(grants, 1):
        starts = -((EPOCH - granted.window.starts_at) // ONE_MILLI)
        ends = -((EPOCH - granted.window.ends_at) // ONE_MILLI)
        for share in granted.shares:
            for uuid in share.gpu_uuids:
                spans[uuid].append((starts, ends, number, granted.lease_id))
        if granted.bid_id in seen:
            yield Fault(f"bid {granted.bid_id} is granted twice", granted.lease_id)
        seen.add(granted.bid_id)
    for uuid, taken in spans.items():
        for starts, ends, lease_id in held_spans(book, uuid, ends_at):
            if starts < ends:
                taken.append((starts, ends, 0, lease_id))
        taken.sort(key=lambda span: span[:3])
        for earlier, later in pairwise(taken):
            if later[0] < earlier[1]:
                said = f"GPU {uuid} is held twice: {earlier[3]} and {later[3]}"
                yield Fault(said, max(earlier, later, key=lambda span: span[2])[3])


def faults_of_cleaning(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find leases that follow another on one GPU too soon for what the offer of either asks.

    A GPU may be in several offers, one after the other, each with a time of its own.
    """
    ends_at = ends_of(grants)
    spans: dict[str, list[Span]] = defaultdict(list)
    cleaned = set[str]()
    for number, granted in enumerate(grants, 1):
        for share in granted.shares:
            listed = book.offers.get(share.offer_id)
            seconds = 0 if listed is None else listed.terms.cleaning_seconds
            for uuid in share.gpu_uuids:
                window, asked = granted.window, timedelta(seconds=seconds)
                span = (window.starts_at, window.ends_at, number, asked, granted.lease_id)
                spans[uuid].append(span)
            if seconds:
                cleaned.update(share.gpu_uuids)
    for uuid in sorted(cleaned):
        for starts, ends, lease_id in held_spans(book, uuid, ends_at):
            if lease_id is not None:
                spans[uuid].append((moment(starts), moment(ends), 0, timedelta(), lease_id))
        for earlier, later in pairwise(sorted(spans[uuid], key=lambda span: span[:3])):
            if later[0] < earlier[1] + max(earlier[3], later[3]) and (earlier[2] or later[2]):
                said = f"GPU {uuid} is not cleaned between {earlier[4]} and {later[4]}"
                yield Fault(said, max(earlier, later, key=lambda span: span[2])[4])


_KEEPS_APART = frozenset({"", "process", "full", "container"})
"""Sandboxes in which tenants may meet on a host; of one that says nothing nothing is known."""


def faults_of_tenants(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find grants that put a tenant beside another on a host that cannot keep the two apart."""
    crowded = {
        share.host_id
        for granted in grants
        for share in granted.shares
        if book.agents.says(share.host_id).sandbox not in _KEEPS_APART
    }
    if not crowded:
        return
    ends_at = ends_of(grants)
    there: dict[object, list[tuple[datetime, datetime, object, LeaseId]]] = defaultdict(list)
    for lease_id, held in book.held.items():
        whose = None if held.bid is None else held.bid.tenant_id
        ends = min(moment(held.ends), ends_at.get(lease_id, moment(held.ends)))
        for host_id in {share.host_id for share in held.granted.shares} & crowded:
            there[host_id].append((held.granted.window.starts_at, ends, whose, lease_id))
    for granted in grants:
        bid, window = book.bids.get(granted.bid_id), granted.window
        whose = None if bid is None else bid.terms.tenant_id
        for host_id in {share.host_id for share in granted.shares} & crowded:
            for starts, ends, other, lease_id in there[host_id]:
                if starts < window.ends_at and window.starts_at < ends and other != whose:
                    said = f"host {host_id} cannot keep it apart from lease {lease_id}"
                    yield Fault(said, granted.lease_id)
                    break
            else:
                there[host_id].append((window.starts_at, window.ends_at, whose, granted.lease_id))


# --- parts of cards ---------------------------------------------------------------------------

_INSTANCE = re.compile(r"MIG-(GPU-[^/]+)/\d+/\d+")
"""An instance's UUID that names its card. Those of newer drivers do not: the host's list stands."""


_SHARE = re.compile(r"([^/]+)/((?:mps|timeslice)-)[0-9]+(of[^/]+)/([0-9]+)pct-[0-9]+mib")


_MADE = re.compile(r"([^/]+)/mig-([^/@]+)@([0-7])-([0-7])")
"""An instance that is made for its lease: card, profile, first and last memory slice."""


class _Held(NamedTuple):
    starts: int
    ends: int
    uuid: str
    lease_id: LeaseId | None


def card(uuid: str) -> str:
    """Return the card that a GPU is, or is part of, as far as its UUID tells."""
    named = _INSTANCE.fullmatch(uuid) or _SHARE.fullmatch(uuid) or _MADE.fullmatch(uuid)
    return uuid if named is None else named[1]


def faults_of_cards(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find grants of cards and parts that cannot be there beside what is held of the card."""
    granted_uuids = {
        uuid for granted in grants for share in granted.shares for uuid in share.gpu_uuids
    }
    parts = {uuid for uuid in {*granted_uuids, *book.calendar.gpus()} if card(uuid) != uuid}
    wanted = {card(uuid) for uuid in parts} & {card(uuid) for uuid in granted_uuids}
    if not wanted:
        return
    gpus = {gpu.uuid: gpu for listed in book.offers.values() for gpu in listed.terms.gpus}
    held = _held(book, wanted, grants)
    for granted in grants:
        starts, ends = from_below(granted.window.starts_at), from_above(granted.window.ends_at)
        mine = {uuid for share in granted.shares for uuid in share.gpu_uuids}
        for name in sorted({card(uuid) for uuid in mine} & wanted):
            there = held[name]
            now = [_Held(starts, ends, uuid, None) for uuid in mine if card(uuid) == name]
            edges = {starts, *(each.starts for each in there if starts <= each.starts < ends)}
            for at in sorted(edges):
                together = {each.uuid for each in there if each.starts <= at < each.ends}
                if not _fit(name, together | {each.uuid for each in now}, gpus):
                    said = f"{sorted(mine)} cannot be on {name} beside {sorted(together)}"
                    yield Fault(said, granted.lease_id)
                    break
            else:
                there += now


def _held(book: Book, cards: set[str], grants: Sequence[LeaseGranted]) -> dict[str, list[_Held]]:
    ends_at = ends_of(grants)
    found: dict[str, list[_Held]] = defaultdict(list)
    for uuid in book.calendar.gpus():
        if card(uuid) in cards:
            for starts, ends, lease_id in held_spans(book, uuid, ends_at):
                found[card(uuid)].append(_Held(starts, ends, uuid, lease_id))
    return found


def _fit(name: str, uuids: set[str], gpus: dict[str, Gpu]) -> bool:
    """Tell if a card can be all of these at one instant."""
    if name in uuids:
        return len(uuids) == 1
    made = [form for uuid in uuids if (form := _MADE.fullmatch(uuid)) is not None]
    if made:
        slices = [at for form in made for at in range(int(form[3]), int(form[4]) + 1)]
        media = sum(form[2].endswith("+me") for form in made)
        return len(made) == len(uuids) and len({*slices}) == len(slices) and media <= 1
    shares = [form for uuid in uuids if (form := _SHARE.fullmatch(uuid)) is not None]
    if shares:
        ways = {(form[2], form[3]) for form in shares}
        percent = sum(int(form[4]) for form in shares)
        return len(shares) == len(uuids) and len(ways) == 1 and percent <= 100
    profiles: list[str] = []
    model = None
    for uuid in uuids:
        if uuid in gpus and len(gpus[uuid].mig_profiles) == 1:
            profiles += gpus[uuid].mig_profiles
            model = card_of(gpus[uuid].model)
    whole = [each for each in profiles if not re.match(r"\d+c\.", each)]
    return model is None or coexist(model, whole)
