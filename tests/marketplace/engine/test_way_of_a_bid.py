"""Who follows a bid from the decision on it to its grant reads few modules."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from uuid import UUID

from ledger.eventstore.port import START
from marketplace import domain
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.instants import from_above
from tests.marketplace.support.market import MARKET, Market

RULES = Path(str(domain.__file__)).parent
MODULES_MAX = 12
HOW_KERNELS_RUN = {Path("kernels/jit.py"), Path("kernels/compiled_files.py")}
"""No rule is there: a kernel that is called for the first time is looked up, or compiled."""


def test_a_bid_passes_at_most_twelve_modules_on_its_way_to_a_grant() -> None:
    market, passed = Market(), set[Path]()
    market.offer("night", gpus=2)
    market.bid("training")
    book = Book(MARKET)
    *facts, bid = market.store.read_all(after=START, limit=10).events
    for fact in facts:
        book.apply(fact.event, fact.position)
    trigger = book.apply(bid.event, bid.position)
    assert trigger is not None

    def note(frame: FrameType, what: str, _: object) -> None:
        at = Path(frame.f_code.co_filename)
        if what == "call" and RULES in at.parents:
            passed.add(at.relative_to(RULES))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        events = on_fact(book, trigger, now=from_above(market.now), round_id=UUID(int=1))
    finally:
        sys.setprofile(before)

    assert any(isinstance(event, LeaseGranted) for event in events)
    passed -= HOW_KERNELS_RUN
    assert len(passed) <= MODULES_MAX, sorted(map(str, passed))
