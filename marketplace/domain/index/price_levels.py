"""All offers that fit a shape, cheapest first: one list for each shape that was asked about.

A list follows what changed since it was last asked for, so that nobody pays for lists that nobody
looks at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.domain.ids import OfferId
from marketplace.domain.orderbook.listed_offer import Entry, Listed

CHANGES_MAX = 100_000


@dataclass(slots=True)
class _Index:
    """The offers that fit one shape, cheapest first, as of `seen` changes."""

    entries: list[Entry] = field(default_factory=list)
    by_offer: dict[OfferId, Entry] = field(default_factory=dict)
    seen: int = 0


class Ranking:
    """entry: gives what of an offer fits a shape, by number; None: nothing."""

    def __init__(
        self, offers: Mapping[OfferId, Listed], entry: Callable[[Listed, int], Entry | None]
    ) -> None:
        self._offers = offers
        self._entry = entry
        self._indexes: dict[int, _Index] = {}
        self._changes: list[Listed] = []

    def changed(self, listed: Listed) -> None:
        """Take note that an offer came, went or is another."""
        if self._indexes:
            self._changes.append(listed)
            if len(self._changes) > CHANGES_MAX:
                self._indexes.clear()
        if not self._indexes:
            self._changes.clear()

    def clear(self) -> None:
        """Forget all lists: shapes have other numbers now."""
        self._indexes.clear()
        self._changes.clear()

    def entries(self, shape: int) -> Sequence[Entry]:
        """Return the offers that fit a shape and are not paused, cheapest first."""
        index = self._indexes.get(shape)
        if index is None:
            index = self._indexes[shape] = _Index(seen=len(self._changes))
            self._rebuild(index, shape)
        elif index.seen < len(self._changes):
            self._follow(index, shape)
        return index.entries

    def _rebuild(self, index: _Index, shape: int) -> None:
        found = (
            self._entry(listed, shape) for listed in self._offers.values() if not listed.paused
        )
        index.entries = sorted(entry for entry in found if entry is not None)
        index.by_offer = {entry.listed.offer_id: entry for entry in index.entries}
        index.seen = len(self._changes)

    def _follow(self, index: _Index, shape: int) -> None:
        changed = {listed.offer_id: listed for listed in self._changes[index.seen :]}
        if len(changed) > 16 + len(index.entries) // 8:
            self._rebuild(index, shape)
            return
        for offer_id, listed in changed.items():
            old = index.by_offer.pop(offer_id, None)
            if old is not None:
                del index.entries[bisect_left(index.entries, old)]
            if offer_id in self._offers and not listed.paused:
                entry = self._entry(listed, shape)
                if entry is not None:
                    insort(index.entries, entry)
                    index.by_offer[offer_id] = entry
        index.seen = len(self._changes)
