"""A bid at which rounds break off is set aside; everybody else is served in the same round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.domain.ids import BidId
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.book.suspension import AGAIN_AFTER, AGAIN_AFTER_MAX, SET_ASIDE, Aside
from marketplace.domain.clearing.bisect import ASIDE_MAX
from marketplace.domain.decisions.decide import Guards, RoundUnsound, on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds import batch_clearing, realise
from marketplace.queries.books import explain_bid
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.rounds import NOW, ROUND, book_of
from tests.marketplace.support.vetting import three_bids, told


class Odd(Exception):
    """Nobody expects it."""


def ids_of(*words: str) -> set[BidId]:
    return {BidId(named(f"bid {word}")) for word in words}


def poison_the_search(monkeypatch: pytest.MonkeyPatch, *words: str, together: bool = False) -> None:
    """Let rounds break off with any of these bids, or only with all of them."""
    ids, honest = ids_of(*words), batch_clearing._solved

    def solved(part: Any, *args: Any) -> Any:
        there = ids & {bid.bid_id for bid in part.bids}
        if there and (there == ids or not together):
            raise Odd("in the search")
        return honest(part, *args)

    monkeypatch.setattr(batch_clearing, "_solved", solved)


def poison_the_sweep(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Let the sweep, which goes bid by bid, break off at one of them."""
    [bid_id], honest = ids_of(word), realise._let
    monkeypatch.setattr(batch_clearing, "given_names", lambda *_: [])

    def let(book: Any, bid: OpenBid, *args: Any) -> Any:
        if bid.bid_id == bid_id:
            raise Odd("in the sweep")
        return honest(book, bid, *args)

    monkeypatch.setattr(realise, "_let", let)


def poison_the_reason(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Let the reason of a refused bid not be found."""
    [bid_id] = ids_of(word)
    honest = Book.reason

    def reason(self: Book, bid: OpenBid, **said: Any) -> Any:
        if bid.bid_id == bid_id:
            raise Odd("in the reason")
        return honest(self, bid, **said)

    monkeypatch.setattr(Book, "reason", reason)


def last_round(market: Market) -> RoundCleared:
    cleared = [r.event for r in market.decisions() if isinstance(r.event, RoundCleared)]
    return next(each for each in reversed(cleared) if each.lane == "round")


@pytest.mark.parametrize("poison", [poison_the_search, poison_the_sweep])
def test_everybody_else_is_served_in_the_same_round(
    monkeypatch: pytest.MonkeyPatch, poison: Callable[..., None]
) -> None:
    market = three_bids()
    poison(monkeypatch, "x")

    with capture_logs() as logs:
        market.run()

    assert [market.grant(word) is not None for word in "xyz"] == [False, True, True]
    assert told(market, "x") == [SET_ASIDE]
    [line] = [line for line in logs if line["event"] == "round.bid-set-aside"]
    assert line["bid"] == str(named("bid x")) and "Odd" in line["faults"]
    cleared = last_round(market)
    assert cleared.certificate is not None
    assert cleared.certificate.aside == tuple(ids_of("x"))
    audit(market.events())


def test_a_bid_whose_reason_breaks_off_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    market.bid("late", at=0.5, patience="patient", deadline=NOON + timedelta(hours=9))
    poison_the_reason(monkeypatch, "late")

    market.run()

    assert all(market.grant(word) is not None for word in "xyz")
    assert told(market, "late") == [SET_ASIDE]


def test_of_two_that_break_a_round_together_one_is_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    poison_the_search(monkeypatch, "x", "z", together=True)

    market.run()

    assert [market.grant(word) is not None for word in "xyz"] == [True, True, False]
    assert told(market, "z") == [SET_ASIDE]


def test_several_bids_are_set_aside_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    poison_the_search(monkeypatch, "x", "z")

    market.run()

    assert [market.grant(word) is not None for word in "xyz"] == [False, True, False]
    assert last_round(market).certificate.aside == tuple(  # type: ignore[union-attr]  # a round's
        sorted(ids_of("x", "z"), key=str)
    )


def test_where_nobody_can_be_cleared_it_is_no_bids_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    market = Market()
    market.offer("a", gpus=20, at=1)
    words = [f"b{number}" for number in range(ASIDE_MAX + 4)]
    for word in words:
        market.bid(word, at=3, patience="patient", deadline=NOON + timedelta(hours=1, minutes=9))
    poison_the_search(monkeypatch, *words[: ASIDE_MAX + 1])
    with pytest.raises(RoundUnsound, match="Odd"):
        on_round(book_of(market), now=NOW, round_id=ROUND)


def test_it_is_left_out_for_a_while_longer_each_time_and_then_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten minutes, twenty, forty: what happens in between looks for nothing."""
    market = three_bids()
    market.offer("b", gpus=2, at=1)
    market.bid("later", gpus=9, at=1, patience="patient", deadline=NOON + timedelta(days=1))
    market.bid("odd", at=2, patience="patient", deadline=NOON + timedelta(days=1))
    asked: list[tuple[int, bool]] = []
    honest, [odd] = batch_clearing.clear_round, ids_of("odd")

    def clear_round(book: Any, bids: Iterable[OpenBid], **said: Any) -> Any:
        bids = list(bids)
        there = any(bid.bid_id == odd for bid in bids)
        asked.append(((said["now"] - from_above(NOON)) // 60_000, there))
        if there:
            raise Odd("in the search")
        return honest(book, bids, **said)

    monkeypatch.setattr(batch_clearing, "clear_round", clear_round)
    for _ in range(75):
        market.run()
        market.wait(seconds=60)

    assert sorted({minute for minute, there in asked if there}) == [0, 10, 30, 70]
    monkeypatch.undo()
    market.run()
    assert market.grant("odd") is None
    market.wait(seconds=80 * 60)
    market.run()
    assert market.grant("odd") is not None


def test_the_wait_has_an_end() -> None:
    assert Aside(1, "r", 0, 1).again_at == AGAIN_AFTER
    assert Aside(1, "r", 0, 900).again_at == AGAIN_AFTER_MAX


def test_an_amended_bid_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    poison_the_search(monkeypatch, "x")
    market.run()
    monkeypatch.undo()

    market.amend("x", at=5, deadline=NOON + timedelta(hours=1, minutes=9))
    market.wait(seconds=61)
    market.run()

    assert market.grant("x") is not None


def test_another_rule_tries_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    poison_the_search(monkeypatch, "x")
    market.run()
    book = book_of(market)
    monkeypatch.undo()

    [aside] = book.aside.values()
    [bid] = book.patient()

    assert aside.holds(bid, now=NOW + 1)
    assert not aside.holds(bid, now=NOW + 1, rule="welfare-99")


def test_the_bid_says_so_until_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    market.offer("b", gpus=1, at=1)
    market.bid("odd", at=2, patience="patient", deadline=NOON + timedelta(days=1))
    poison_the_search(monkeypatch, "odd")
    market.run()

    def reason(minutes: int) -> str | None:
        at = NOON + timedelta(minutes=minutes)
        found = explain_bid(market.store, market=MARKET, bid_id=named("bid odd"), now=at)
        assert found is not None
        return found.reason

    assert (reason(1), reason(9), reason(11)) == (SET_ASIDE, SET_ASIDE, None)


def test_a_round_that_set_a_bid_aside_is_replayed_to_the_same_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the mistake is mended since: it leaves out whom the certificate names."""
    market = three_bids()
    poison_the_search(monkeypatch, "x")
    market.run()
    round_id = last_round(market).round_id
    monkeypatch.undo()

    assert replay_round(market.store, market=MARKET, round_id=round_id).outcome == "identical"


def test_a_book_from_a_snapshot_knows_whom_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    poison_the_search(monkeypatch, "x")
    market.run()
    book = book_of(market)

    assert restored(state_of(book)).aside == book.aside != {}


def test_whose_time_is_up_sets_the_group_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three bids one breaks off; there is time for one look, and it is in the first half."""
    market = three_bids()
    market.bid("w", at=1.5, patience="patient", deadline=NOON + timedelta(hours=1, minutes=9))
    poison_the_search(monkeypatch, "x")
    looks = iter([False, True, True, True, True])

    events = on_round(
        book_of(market), now=NOW, round_id=ROUND, guards=Guards(looking=lambda: next(looks))
    )

    granted = {each.bid_id for each in events if isinstance(each, LeaseGranted)}
    assert granted == ids_of("z", "w")
