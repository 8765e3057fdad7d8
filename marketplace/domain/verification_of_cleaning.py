"""Check that a round leaves time between two leases of a GPU, where its owner asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from ledger.domain.ids import LeaseId
from marketplace.domain.book import Book
from marketplace.domain.cut_ends import ends_of
from marketplace.domain.events import LeaseGranted
from marketplace.domain.faults import Fault
from marketplace.domain.moments import moment

Span = tuple[datetime, datetime, int, LeaseId | None]
"""From when, until when, which grant of the round (0: an older lease), and whose."""


def faults_of_cleaning(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find leases that follow another on one GPU too soon."""
    ends_at = ends_of(grants)
    gap: dict[str, timedelta] = defaultdict(timedelta)
    spans: dict[str, list[Span]] = defaultdict(list)
    for number, granted in enumerate(grants, 1):
        for share in granted.shares:
            listed = book.offers.get(share.offer_id)
            seconds = 0 if listed is None else listed.terms.cleaning_seconds
            for uuid in share.gpu_uuids:
                gap[uuid] = max(gap[uuid], timedelta(seconds=seconds))
                window = granted.window
                spans[uuid].append((window.starts_at, window.ends_at, number, granted.lease_id))
    for uuid, least in gap.items():
        if not least:
            continue
        for span in book.calendar.of(uuid):
            if span.lease_id is not None:
                ends = ends_at.get(span.lease_id, moment(span.ends))
                spans[uuid].append((moment(span.starts), ends, 0, span.lease_id))
        for earlier, later in pairwise(sorted(spans[uuid], key=lambda span: span[:3])):
            if later[0] < earlier[1] + least and (earlier[2] or later[2]):
                said = f"GPU {uuid} is not cleaned between {earlier[3]} and {later[3]}"
                yield Fault(said, max(earlier, later, key=lambda span: span[2])[3])
