"""How many bids a stage of a round tries: all of them, until time is up, or as many as before.

A stage that is cut short says so in the proof of its round, by its name and how many it tried. So
the round can be made again bit for bit; what it did not come to is tried in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.domain.ids import BidId

Enough = Callable[[], bool]
"""True once time is up, and from then on."""
Late = Callable[[str], bool]
"""The same for the stages around the search, told which one asks: only their own time counts."""
Steps = Mapping[str, int]
"""What each stage of a round did, by name."""

TRIES_MIN = 64
"""So many bids are tried by a stage however late it is, so that every round comes to something."""


class BrokeOff(Exception):
    """A round broke off, and this was the bid that was tried just then."""

    def __init__(self, bid_id: BidId) -> None:
        super().__init__(bid_id)
        self.bid_id = bid_id


class Tries:
    """The tries of one stage. trying: the bid that was last tried."""

    def __init__(self, name: str, *, late: Late | None, steps: Steps | None, least: int) -> None:
        self.trying: BidId | None = None
        self._name, self._late, self._least = name, late, least
        self._most = None if steps is None else steps.get(name)
        self._made, self._cut = 0, False

    def more(self, bid_id: BidId | None = None) -> bool:
        """Tell if one more bid may be tried, and count it."""
        self.trying = bid_id
        if self._cut:
            return False
        if self._most is not None:
            self._cut = self._made >= self._most
        elif self._late is not None and self._made >= self._least:
            self._cut = self._late(self._name)
        self._made += not self._cut
        return not self._cut

    @property
    def steps(self) -> list[tuple[str, int]]:
        """Return what the proof has to tell; nothing where all were tried."""
        return [(self._name, self._made)] if self._cut else []


class Watch:
    """The time of one round, or the steps of an earlier one that is made again."""

    def __init__(self, late: Late | None = None, steps: Steps | None = None) -> None:
        self._steps, self._stages = steps, list[Tries]()
        self._late = late if steps is None else None

    def stage(self, name: str, *, least: int | None = None) -> Tries:
        """Begin a stage. least: so many are tried in any case; TRIES_MIN, if not given."""
        least = TRIES_MIN if least is None else least
        if self._late is not None:
            self._late(name)  # from now on its time is counted
        tries = Tries(name, late=self._late, steps=self._steps, least=least)
        self._stages.append(tries)
        return tries

    @property
    def trying(self) -> BidId | None:
        """Return the bid that the last stage was trying, if it goes bid by bid."""
        return self._stages[-1].trying if self._stages else None

    def over(self) -> None:
        """Say that no stage is trying a bid any more."""
        for stage in self._stages[-1:]:
            stage.trying = None

    @property
    def cut(self) -> list[tuple[str, int]]:
        """Return the stages that were cut short, and how many each tried."""
        return [step for stage in self._stages for step in stage.steps]
