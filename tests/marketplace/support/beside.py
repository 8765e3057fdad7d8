"""Rounds that are out for as long as a test says: worked out at once, handed over when asked."""

from __future__ import annotations

from collections.abc import Callable

from marketplace.beside import Lost
from marketplace.domain.facts.events import RoundCleared
from marketplace.domain.verification.verify_round import faults
from marketplace.replay.round import book_at, replay_round
from tests.marketplace.support.market import Market


class Held:
    """Work whose result is held back until it is let go; as a fork of that moment has it."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._told, self.is_over, self.stopped, self._why = work(), False, False, ""

    def let_go(self) -> None:
        """Hand over what it came to."""
        self.is_over = True

    def lose(self, why: str = "it was ended by signal 9") -> None:
        """Let it come to nothing."""
        self.is_over, self._why = True, why

    def result(self) -> bytes:
        """Return what it came to. Raises: Lost."""
        assert self.is_over
        if self._why:
            raise Lost(self._why)
        return self._told

    def stop(self) -> None:
        """End it."""
        self.stopped = True


class Hold:
    """What an engine begins its rounds by. out: those it began, the last one last."""

    def __init__(self) -> None:
        self.out: list[Held] = []

    def __call__(self, work: Callable[[], bytes]) -> Held:
        self.out.append(Held(work))
        return self.out[-1]

    def let_go(self) -> None:
        """Let the last one come back."""
        self.out[-1].let_go()


def rounds_of(market: Market) -> list[RoundCleared]:
    """Return the rounds of patient bids that were appended."""
    return [
        each.event
        for each in market.decisions()
        if isinstance(each.event, RoundCleared) and each.event.lane == "round"
    ]


def replayed(market: Market) -> None:
    """Check that every round, cleared again from the log, is what was recorded, and sound.

    It is checked as a whole on the book on which it was appended: what looked at a part of it only
    must have come to the same.
    """
    for cleared in rounds_of(market):
        again = replay_round(market.store, market=market.name, round_id=cleared.round_id)
        assert (again.outcome, again.differences) == ("identical", ())
        found = book_at(market.store, market.name, cleared.round_id)
        assert not faults(found.book, found.cleared, found.granted)
