"""Prove that what a round grants of a card in parts can be on that card together.

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
from typing import NamedTuple

from ledger.domain.ids import LeaseId
from listings.domain.events import Gpu
from listings.domain.mig import card_of, coexist
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import from_above, from_below
from marketplace.domain.verification.cuts import ends_of

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
            for starts, ends, lease_id in book.calendar.of(uuid):
                if lease_id in ends_at:
                    ends = min(ends, from_above(ends_at[lease_id]))
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
