"""Rounds of patient bids: worth the most, vouched for, and the same again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import BidId, HostId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import GpuRequest, LeaseGranted, Patience, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.placement import sizes
from marketplace.domain.verification.verify_round import faults
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.rounds import NOW, ROUND, book_of, cleared, no_fault


def test_two_small_bids_that_are_worth_more_win_over_a_big_one_that_pays_more_an_hour() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + timedelta(hours=4))])
    market.bid("x", gpus=1, hours=1, at=9, start=NOON, patience="patient")
    market.bid("y", gpus=2, hours=4, at=6, deadline=NOON + timedelta(hours=4), patience="patient")

    told, grants = cleared(book_of(market))

    # x alone would take the first hour of one GPU, and y, all or nothing, could not run.
    assert [granted.bid_id for granted in grants] == [named("bid y")]
    assert told.certificate is not None
    assert told.certificate.welfare_nanos == (6 - 1) * 2 * 4 * 10**9


def test_a_gang_gets_its_hosts_at_one_start_however_the_gaps_lie() -> None:
    market = Market()
    market.offer("a", gpus=4, at=1)
    market.offer("b", gpus=4, at=1, windows=[(NOON + timedelta(hours=2), NOON + timedelta(days=2))])
    market.bid("x", gpus=8, hours=3, at=3, gang=True, patience="patient")

    _, [granted] = cleared(book_of(market))

    assert granted.window.starts_at == NOON + timedelta(hours=2)
    assert sorted(len(share.gpu_uuids) for share in granted.shares) == [4, 4]


def test_a_lease_starts_as_soon_as_its_gpus_are_free_not_at_the_next_point_of_the_grid() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    for word in ("x", "y", "z"):
        market.bid(word, hours=7 / 60, at=2, patience="patient")

    _, grants = cleared(book_of(market))

    starts = sorted(granted.window.starts_at for granted in grants)
    assert starts == [NOON + timedelta(minutes=minutes) for minutes in (0, 7, 14)]


def test_what_the_search_cannot_see_the_sweep_still_serves() -> None:
    """An NVLink group whose GPUs are free at different times is several pools to the search."""
    market = Market()
    market.offer("a", gpus=2, nvlink=2, at=1)
    market.bid("i", gpus=1, hours=2, at=2, start=NOON + timedelta(hours=6))
    market.run()
    market.bid("x", gpus=2, hours=1, at=2, request=GpuRequest(nvlink=True), patience="patient")

    told, [granted] = cleared(book_of(market))

    assert granted.window.starts_at == NOON
    assert told.certificate is not None
    assert told.certificate.bound_nanos >= told.certificate.welfare_nanos == 2 * 10**9


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_gang_that_wants_nvlink_gets_one_group_of_each_host(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=4, nvlink=2, at=1)
    market.offer("b", gpus=4, nvlink=2, at=1)
    request = GpuRequest(nvlink=True)
    market.bid("x", gpus=4, gang=True, request=request, patience=patience)
    market.bid("y", gpus=6, gang=True, request=request, patience=patience)

    market.run()

    granted = market.grant("x")
    assert granted is not None
    groups = [{uuid.partition(":")[2] for uuid in each.gpu_uuids} for each in granted.shares]
    assert all(group in ({"0", "1"}, {"2", "3"}) for group in groups)
    assert len(granted.shares) == 2
    assert market.grant("y") is None


BIDS = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.sampled_from([1, 1, 2, 3]),
            "hours": st.sampled_from([0.25, 1, 1.7, 5]),
            "at": st.integers(1, 6),
            "room": st.sampled_from([0, 1, 9]),
            "wait": st.sampled_from([0, 0, 3]),
            "gang": st.booleans(),
            "service_class": st.sampled_from(["on-demand", "on-demand", "interruptible"]),
        }
    ),
    min_size=1,
    max_size=9,
)
OFFERS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from([2, 8, 24])),
    min_size=1,
    max_size=3,
)


def lived(offers: list[tuple[int, int, int]], bids: list[dict[str, Any]]) -> Market:
    """Return a market with these offers, one lease in the way, and these patient bids."""
    market = Market()
    for number, (gpus, floor, hours) in enumerate(offers):
        window = (NOON, NOON + timedelta(hours=hours))
        market.offer(f"o{number}", gpus=gpus, at=floor, windows=[window])
    market.bid("busy", hours=1, at=9, start=NOON + timedelta(hours=1))
    market.run()
    for number, said in enumerate(bids):
        terms = dict(said)
        start = NOON + timedelta(hours=terms.pop("wait"))
        room = terms.pop("room")
        deadline = start + timedelta(hours=terms["hours"] + room)
        market.bid(f"b{number}", patience="patient", start=start, deadline=deadline, **terms)
    return market


@given(OFFERS, BIDS)
@settings(max_examples=120, deadline=None)
def test_every_round_is_sound_and_within_its_bound_and_comes_out_the_same_again(
    offers: list[tuple[int, int, int]], bids: list[dict[str, Any]]
) -> None:
    market = lived(offers, bids)

    events = on_round(book_of(market), now=NOW, round_id=ROUND, warn=no_fault)

    # on_round has checked it, and dropped nothing.
    assert on_round(book_of(market), now=NOW, round_id=ROUND) == events
    if events:
        first = events[0]
        assert isinstance(first, RoundCleared) and first.certificate is not None
        assert 0 <= first.certificate.welfare_nanos <= first.certificate.bound_nanos
        steps = dict(first.certificate.iterations)
        assert on_round(book_of(market), now=NOW, round_id=ROUND, steps=steps) == events


@given(OFFERS, BIDS, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_a_round_that_was_cut_short_is_sound_and_can_be_made_again(
    offers: list[tuple[int, int, int]], bids: list[dict[str, Any]], asked_max: int
) -> None:
    market, asked = lived(offers, bids), iter(range(10**6))

    events = on_round(
        book_of(market),
        now=NOW,
        round_id=ROUND,
        enough=lambda: next(asked) >= asked_max,
        warn=no_fault,
    )

    if events:
        first = events[0]
        assert isinstance(first, RoundCleared) and first.certificate is not None
        steps = dict(first.certificate.iterations)
        assert on_round(book_of(market), now=NOW, round_id=ROUND, steps=steps) == events


def sound() -> tuple[Book, RoundCleared, list[LeaseGranted]]:
    """Return a round with two grants in which nothing is wrong."""
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + timedelta(hours=6))])
    market.offer("b", gpus=1, at=2, model="T4", kinds=("rendering",))
    market.bid("busy", hours=1, at=9, start=NOON + timedelta(hours=4))
    market.run()
    deadline = NOON + timedelta(hours=3)
    request = GpuRequest(models=("H100",), memory_mib_min=40_000, region="eu")
    for word in ("x", "y"):
        market.bid(word, hours=2, at=5, deadline=deadline, patience="patient", request=request)
    book = book_of(market)
    return book, *cleared(book)


Change = Callable[[LeaseGranted], LeaseGranted]


def shares(**fields: Any) -> Change:
    """Change a field of the grant's share."""
    return lambda granted: replace(granted, shares=(replace(granted.shares[0], **fields),))


def window(since: float, until: float) -> Change:
    """Move the grant, in hours from noon."""
    ends = NOON + timedelta(hours=until)
    return lambda granted: replace(granted, window=Window(NOON + timedelta(hours=since), ends))


def price(nanos: int) -> Change:
    """Change the grant's price."""
    return lambda granted: replace(granted, price=Rate(nanos))


WRONG: dict[str, tuple[Change, str]] = {
    "not open": (lambda g: replace(g, bid_id=BidId(named("bid nobody"))), "is not open"),
    "the other bid too": (lambda g: replace(g, bid_id=BidId(named("bid y"))), "granted twice"),
    "too many GPUs": (shares(gpu_uuids=("a:0", "a:1")), "2 GPUs for a bid of 1"),
    "a GPU of another": (shares(gpu_uuids=("b:0",)), "has no ['b:0']"),
    "another host": (shares(host_id=HostId(named("host z"))), "has no []"),
    "no such offer": (shares(offer_id=named("offer z")), "is not listed"),
    "not its kind": (
        shares(offer_id=named("offer b"), host_id=named("host b"), gpu_uuids=("b:0",)),
        "does not allow other",
    ),
    "not its model": (
        shares(offer_id=named("offer b"), host_id=named("host b"), gpu_uuids=("b:0",)),
        "GPU b:0 is not what was asked for",
    ),
    "other notice": (shares(notice_seconds=1), "other terms of reclaim"),
    "other grace": (shares(grace_seconds=1), "other terms of reclaim"),
    "too short": (window(0, 1), "lasts 1:00:00"),
    "too early": (window(-1, 1), "starts too early"),
    "past the deadline": (window(2, 4), "after the bid's deadline"),
    "past the window": (window(5, 7), "has no window"),
    "on a GPU that is leased": (window(3.5, 5.5), "is held twice"),
    "over the limit": (price(5 * 10**9 + 1), "above limit"),
    "under the floor": (price(10**9 - 1), "below the floor"),
}


def test_a_sound_round_has_no_fault() -> None:
    book, told, grants = sound()

    assert len(grants) == 2
    assert faults(book, told, grants) == []


@pytest.mark.parametrize("name", WRONG)
def test_each_kind_of_fault_is_found(name: str) -> None:
    book, told, grants = sound()
    change, said = WRONG[name]
    [mine] = [granted for granted in grants if granted.bid_id == named("bid x")]
    others = [granted for granted in grants if granted is not mine]

    found = faults(book, told, [change(mine), *others])

    assert any(said in str(fault) for fault in found), found


def test_two_grants_of_one_gpu_at_one_time_are_found() -> None:
    book, told, grants = sound()
    one, other = grants

    found = faults(book, told, [one, replace(other, shares=one.shares, window=one.window)])

    assert any("is held twice" in str(fault) for fault in found), found


def test_a_certificate_that_does_not_add_up_is_found() -> None:
    book, told, grants = sound()
    assert told.certificate is not None
    welfare = told.certificate.welfare_nanos

    richer = replace(told, certificate=replace(told.certificate, welfare_nanos=welfare + 1))
    lower = replace(told, certificate=replace(told.certificate, bound_nanos=welfare - 1))
    fewer = replace(told, grants=1)

    assert any("is worth" in str(fault) for fault in faults(book, richer, grants))
    assert any("below the welfare" in str(fault) for fault in faults(book, lower, grants))
    assert any("its grants say" in str(fault) for fault in faults(book, fewer, grants))
    assert any(
        "no certificate" in str(f) for f in faults(book, replace(told, certificate=None), grants)
    )


def test_an_unsound_round_is_not_appended_and_its_bids_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    market = Market()
    market.offer("a", at=1)
    market.bid("x", patience="patient")
    market.bid("y", hours=1, start=NOON + timedelta(hours=9))
    monkeypatch.setattr("marketplace.domain.decisions.decide.faults", lambda *_: [Fault("made up")])

    market.run()

    assert market.grant("x") is None
    assert market.grant("y") is not None
    monkeypatch.undo()
    market.wait(seconds=61)
    market.run()
    assert market.grant("x") is not None


def test_one_without_room_tells_of_all_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred bids for two GPUs: one that finds no room is enough to know it of the others."""
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + timedelta(hours=1))])
    for number in range(100):
        market.bid(f"b{number}", at=3, deadline=NOON + timedelta(hours=2), patience="patient")
    asked = list[object]()
    honest = sizes.fit

    def fit(*args: Any, **said: Any) -> Any:
        asked.append(args)
        return honest(*args, **said)

    monkeypatch.setattr(sizes, "fit", fit)

    told, grants = cleared(book_of(market), warn=no_fault)

    assert len(grants) == 2
    assert len(asked) == 1, "once by the sweep, which the reason of them all rests on too"
    assert told.certificate is not None
    assert {each.reason for each in told.unmatched} == {"taken"}
