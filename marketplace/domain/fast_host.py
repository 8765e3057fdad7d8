"""The room of one host, as `serving` works on it: bids come from there already placed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from marketplace.domain.calendar import Calendar
from marketplace.domain.demand import OpenBid
from marketplace.domain.moments import Millis
from marketplace.domain.one_host import OneHost
from marketplace.domain.openings import ZERO
from marketplace.domain.packing import Placement
from marketplace.domain.queue import Selection
from marketplace.domain.serving import FULL, LEVELS_MAX, NOBODY, PLACED, cut, next_served

SPANS_START = 32


class FastHost(OneHost):
    """As `OneHost`, for an offer whose GPUs are all alike, with no bid of its owner waiting."""

    def _look(self, calendar: Calendar) -> None:
        found = self._free(calendar)
        self._uuids = [uuid for uuid, _ in found]
        free = [spans for _, spans in found]
        most = max(SPANS_START, 2 + max(len(spans) for spans in free))
        self._spans = np.zeros((len(free), most, 2), np.int64)
        self._counts = np.array([len(spans) for spans in free], np.int64)
        for gpu, spans in enumerate(free):
            if spans:  # a GPU may have no time left at all
                self._spans[gpu, : len(spans)] = spans
        self._placed: tuple[OpenBid, Placement] | None = None

    def bids(self, served: Selection) -> Iterator[OpenBid]:
        """Yield the bids that find room, in order; `place` then tells where."""
        gpus, listed = len(self._uuids), self.listed
        stretches = np.array(served.spans, np.int64).reshape(-1, 2)
        terms = np.array([listed.lease_min, self._since, ZERO * 1_000, listed.cleaning], np.int64)
        reach = np.zeros(2 + LEVELS_MAX + gpus, np.int64)
        found = np.zeros((gpus * self._spans.shape[1], 5), np.int64)
        answer, uuids, bids = np.zeros(2 + gpus, np.int64), self._uuids, served.bids
        columns, floors, waits = served.columns, served.floors, served.waits
        while True:
            code = next_served(
                columns.order,
                columns.asked,
                stretches,
                floors,
                waits,
                terms,
                self._spans,
                self._counts,
                reach,
                found,
                answer,
            )
            if code == NOBODY:
                return
            if code == FULL:
                self._spans = np.concatenate([self._spans, np.zeros_like(self._spans)], axis=1)
                found = np.zeros((gpus * self._spans.shape[1], 5), np.int64)
                continue
            slot, start, *chosen = answer.tolist()
            bid = bids[slot]
            assert bid is not None
            if code == PLACED:
                at = tuple([(listed, uuids[gpu]) for gpu in chosen[: bid.gpus]])
                self._placed = bid, Placement(Millis(start), at, listed.floor)
            yield bid

    def serves(self, bid: OpenBid) -> bool:
        """Tell if the bid is the one that was placed."""
        return self._placed is not None and self._placed[0] is bid

    def place(self, bid: OpenBid) -> Placement | None:
        """Return where the bid was placed."""
        return None if self._placed is None else self._placed[1]

    def take(self, uuids: Collection[str], starts: int, ends: int) -> None:
        """Take note that a bid that was not placed here got some GPUs."""
        if self._placed is not None:
            self._placed = None
            return
        for gpu, uuid in enumerate(self._uuids):
            if uuid in uuids:
                spans = self._spans[gpu, : self._counts[gpu]].tolist()
                for at, (opens, closes) in enumerate(spans):
                    if opens <= starts and ends <= closes:
                        gap = self.listed.cleaning
                        cut(self._spans, self._counts, gpu, at, starts - gap, ends + gap)
                        break
