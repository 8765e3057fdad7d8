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
from marketplace.domain.serving import FULL, LEVELS_MAX, LOOK, MORE, NOBODY, cut, serve

SPANS_START = 32
AT_ONCE = 64
"""Bids that are placed before the first of them is handed on."""


class FastHost(OneHost):
    """As `OneHost`, for an offer whose GPUs are all alike, with no bid of its owner waiting."""

    def _look(self, calendar: Calendar) -> None:
        self._placed: tuple[OpenBid, Placement] | None = None
        uuids, free = zip(*self._free(calendar), strict=True)
        self._uuids: tuple[str, ...] = uuids
        most = max(SPANS_START, 2 + max([len(spans) for spans in free]))
        self._spans = np.zeros((len(free), most, 2), np.int64)
        self._counts = np.array([len(spans) for spans in free], np.int64)
        for gpu, spans in enumerate(free):
            if gpu and spans is free[gpu - 1]:  # with a new offer all are free at the same times
                self._spans[gpu] = self._spans[gpu - 1]
            elif spans:  # a GPU may have no time left at all
                self._spans[gpu, : len(spans)] = spans

    def bids(self, served: Selection) -> Iterator[OpenBid]:
        """Yield the bids that find room, in order; `place` then tells where."""
        gpus, listed = len(self._uuids), self.listed
        stretches = np.array(served.spans, np.int64).reshape(-1, 2)
        terms = np.array([listed.lease_min, self._since, ZERO * 1_000, listed.cleaning], np.int64)
        reach = np.zeros(2 + LEVELS_MAX + gpus, np.int64)
        found = np.zeros((gpus * self._spans.shape[1], 5), np.int64)
        answers, uuids, bids = np.zeros((AT_ONCE, 2 + gpus), np.int64), self._uuids, served.bids
        columns, floors, waits = served.columns, served.floors, served.waits
        code = MORE
        while code != NOBODY:
            code, count = serve(
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
                answers,
            )
            for slot, start, *chosen in answers[:count].tolist():
                bid = bids[slot]
                assert bid is not None
                at = tuple([(listed, uuids[gpu]) for gpu in chosen[: bid.gpus]])
                self._placed = bid, Placement(Millis(start), at, listed.floor)
                yield bid
            self._placed = None
            if code == LOOK:
                odd = bids[int(answers[count, 0])]
                assert odd is not None
                yield odd
            elif code == FULL:
                self._spans = np.concatenate([self._spans, np.zeros_like(self._spans)], axis=1)
                found = np.zeros((gpus * self._spans.shape[1], 5), np.int64)

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
