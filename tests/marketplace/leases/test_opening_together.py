"""Grants of one page become leases in two appends, and come out as one after the other would."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from ledger.domain.event import Event
from ledger.domain.ids import BidId
from ledger.eventstore.port import Appended, Recorded, StreamMoved, Write
from ledger.following import Policy, names_of
from ledger.reacting import _react
from marketplace.commands import bids
from marketplace.domain.facts.events import BidCancelled, BidFilled, LeaseGranted, LeaseScheduled
from marketplace.policies import OPEN_LEASE, policies
from metering.policies import POLICIES
from tests.marketplace.support.market import named, somebody
from tests.marketplace.support.site import TERMS, Site

WORDS = tuple("abcdefgh")


def granted(*, cancelled: str = "") -> Site:
    """Return a market that has granted a bid for each word, a few of which were withdrawn then."""
    site = Site(funds=2_000)
    for number, word in enumerate(WORDS):
        site.offer(f"offer {word}", host=f"host {word}", gpus=2)
        terms = replace(TERMS, bid_id=BidId(named(f"bid {word}")), duration_seconds=3_600 + number)
        bids.place_bid(site.store, terms=terms, by=somebody(), now=site.now)
    site.run()
    for word in cancelled:
        bid_id = BidId(named(f"bid {word}"))
        bids.cancel_bid(site.store, bid_id=bid_id, by=somebody(), now=site.now)
    return site


def grants(site: Site) -> list[Recorded]:
    return list(site.store.read_all(only=names_of(LeaseGranted)).events)


def opening() -> Policy:
    [policy] = [each for each in policies(fee_ppm=50_000) if each.name.endswith(OPEN_LEASE)]
    return policy


def outcome(site: Site) -> dict[str, list[Event]]:
    """Return what happened on each bid and lease, and to each hold."""
    found: dict[str, list[Event]] = {}
    for recorded in site.store.read_all().events:
        if recorded.meta.actor == f"policy:{OPEN_LEASE}":
            named_hold = str(getattr(recorded.event, "hold_id", ""))
            found.setdefault(f"{recorded.stream} {named_hold}", []).append(recorded.event)
    return found


@pytest.mark.parametrize("cancelled", ["", "c", "ah", WORDS])
def test_together_they_come_out_as_one_by_one(cancelled: str) -> None:
    together, alone = granted(cancelled=cancelled), granted(cancelled=cancelled)
    done: list[Recorded] = []

    _react(opening(), together.store, grants(together), done)

    for recorded in grants(alone):
        opening().react(recorded, alone.store)
    assert {name.split(" ")[0].split("-")[0] for name in outcome(together)} >= {"bid"}
    of_each = [
        {kind: len(list(site.store.read_all(only=names_of(kind)).events)) for kind in KINDS}
        for site in (together, alone)
    ]
    assert of_each[0] == of_each[1]
    assert of_each[0][BidFilled] == len(WORDS) - len(cancelled)
    assert together.account.available == alone.account.available
    assert done == grants(together)


KINDS = (BidFilled, BidCancelled, LeaseScheduled)


def test_asked_again_after_a_crash_nothing_happens_twice() -> None:
    site = granted(cancelled="d")
    _react(opening(), site.store, grants(site)[:5], [])

    _react(opening(), site.store, grants(site), [])

    head = site.store.head()
    _react(opening(), site.store, grants(site), [])
    assert site.store.head() == head
    assert len(outcome(site)) >= 2 * (len(WORDS) - 1)


def test_many_meters_are_opened_in_one_append(monkeypatch: pytest.MonkeyPatch) -> None:
    site = granted()
    _react(opening(), site.store, grants(site), [])
    scheduled = list(site.store.read_all(only=names_of(LeaseScheduled)).events)
    appends: list[int] = []
    append_each = site.store.append_each

    def counted(writes: Sequence[Write]) -> list[Appended]:
        appends.append(len(writes))
        return append_each(writes)

    monkeypatch.setattr(site.store, "append_each", counted)

    _react(POLICIES[0], site.store, scheduled, [])

    assert appends == [len(WORDS)]


def test_who_is_overtaken_again_and_again_has_the_log_for_itself_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, alone, busy = granted(), list[bool](), 6
    hold_alone = site.store.alone
    append_each = site.store.append_each

    def overtaken(writes: Sequence[Write]) -> list[Appended]:
        nonlocal busy
        busy -= 1
        if busy > 0 and not alone:
            raise StreamMoved("account")
        return append_each(writes)

    def held() -> AbstractContextManager[None]:
        alone.append(True)
        return hold_alone()

    monkeypatch.setattr(site.store, "append_each", overtaken)
    monkeypatch.setattr(site.store, "alone", held)

    _react(opening(), site.store, grants(site), [])

    assert alone
    assert len(list(site.store.read_all(only=names_of(BidFilled)).events)) == len(WORDS)
