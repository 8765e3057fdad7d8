"""Check that a round leaves time between two leases of a GPU, where its owner asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from ledger.domain.ids import LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import moment
from marketplace.domain.verification.cuts import ends_of

Span = tuple[datetime, datetime, int, timedelta, LeaseId | None]
"""From when, until when, which grant of the round (0: an older lease), how long its offer has the
GPU cleaned before it and after it (of an older one: nothing is asked any more), and whose."""


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
        for held in book.calendar.of(uuid):
            if held.lease_id is not None:
                ends = ends_at.get(held.lease_id, moment(held.ends))
                spans[uuid].append((moment(held.starts), ends, 0, timedelta(), held.lease_id))
        for earlier, later in pairwise(sorted(spans[uuid], key=lambda span: span[:3])):
            if later[0] < earlier[1] + max(earlier[3], later[3]) and (earlier[2] or later[2]):
                said = f"GPU {uuid} is not cleaned between {earlier[4]} and {later[4]}"
                yield Fault(said, max(earlier, later, key=lambda span: span[2])[4])
