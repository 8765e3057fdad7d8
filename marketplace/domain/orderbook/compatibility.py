"""Offers alike in all that decides what fits them, and which shape of bid fits which kind of offer.

A market has thousands of offers and bids, but few kinds and shapes: what fits what is worked out
once for each pair of them and kept in a table of booleans that NumPy can filter by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from listings.domain.events import Gpu, Isolation, OfferPublished
from marketplace.domain.kernels.layout import Bools
from marketplace.domain.orderbook.open_bid import Shape

KINDS_START, SHAPES_START = 64, 64


class Spec(NamedTuple):
    """What one GPU of an offer is. gpu: without a name; joined: GPUs of its NVLink group here."""

    gpu: Gpu
    joined: int


class Kind(NamedTuple):
    """What an offer is, as far as constraints look at it. specs: each once."""

    specs: tuple[Spec, ...]
    region: str
    labels: tuple[tuple[str, str], ...]
    isolation: Isolation
    workload_kinds: tuple[str, ...]
    currency: str


NAMES = ("uuid", "nvlink_group", "card_uuid")
"""What of a GPU says which it is, not what it is."""
NO_NAMES: dict[str, Any] = {"uuid": "", "nvlink_group": None, "card_uuid": None}
_SAYS_WHAT = tuple(f.name for f in fields(Gpu) if f.name not in NAMES)
_alike = attrgetter(*_SAYS_WHAT)


@lru_cache(maxsize=4_096)
def _nameless(alike: tuple[Any, ...]) -> Gpu:
    """Return what GPUs are that are alike: the same object, so that it is compared at once."""
    return Gpu(**dict(zip(_SAYS_WHAT, alike, strict=True)), **NO_NAMES)


def kind_of(offer: OfferPublished) -> tuple[Kind, tuple[int, ...]]:
    """Return an offer's kind, and for each of its GPUs the place of its spec there."""
    groups = [gpu.nvlink_group for gpu in offer.gpus if gpu.nvlink_group]
    joined = Counter(groups) if groups else {}
    keys = [
        (_alike(gpu), joined[gpu.nvlink_group] if gpu.nvlink_group else 0) for gpu in offer.gpus
    ]
    # In an order of their own, so that two offers with the same GPUs are of one kind.
    is_one = keys.count(keys[0]) == len(keys)
    distinct = keys[:1] if is_one else sorted(set(keys), key=repr)
    kind = Kind(
        tuple([Spec(_nameless(alike), linked) for alike, linked in distinct]),
        offer.region,
        offer.labels,
        offer.isolation,
        offer.workload_kinds,
        offer.floor.currency,
    )
    return kind, (0,) * len(keys) if is_one else tuple([distinct.index(key) for key in keys])


class Kinds:
    """Numbers for kinds and shapes, and the table of which fit.

    passed: how many constraints each spec of a kind passes for a shape before the first that it
    does not; `all_passed` means that it fits. Numbers are never used again.
    """

    def __init__(self, passed: Callable[[Shape, Kind], tuple[int, ...]], all_passed: int) -> None:
        self._passed = passed
        self._all_passed = all_passed
        self._kinds: dict[Kind | frozenset[int], int] = {}
        self._shapes: dict[Shape, int] = {}
        self._listed_kinds: list[Kind | frozenset[int]] = []
        self._listed_shapes: list[Shape] = []
        self._specs: list[dict[int, tuple[int, ...]]] = []
        self._table: Bools = np.zeros((KINDS_START, SHAPES_START), np.bool_)
        self._last: tuple[Shape | None, int] = (None, 0)
        self._fitting: dict[int, tuple[int, list[int]]] = {}
        """For each kind, the shapes that it fits, of so many."""

    @property
    def table(self) -> Bools:
        """Return which kinds (rows) fit which shapes (columns)."""
        return self._table

    @property
    def shapes(self) -> int:
        """Return how many shapes there are."""
        return len(self._listed_shapes)

    @property
    def kinds(self) -> int:
        """Return how many kinds there are, mixed ones included."""
        return len(self._listed_kinds)

    def kind(self, kind: Kind) -> int:
        """Return a kind's number."""
        number = self._kinds.get(kind)
        return self._new_kind(kind) if number is None else number

    def mixed(self, kinds: frozenset[int]) -> int:
        """Return the number that stands for offers of several kinds: fits what fits any."""
        if len(kinds) == 1:
            return next(iter(kinds))
        number = self._kinds.get(kinds)
        return self._new_kind(kinds) if number is None else number

    def shape(self, shape: Shape) -> int:
        """Return a shape's number."""
        if shape is self._last[0]:  # asked several times for one bid
            return self._last[1]
        number = self._shapes.get(shape)
        if number is None:
            number = self._new_shape(shape)
        self._last = (shape, number)
        return number

    def _new_shape(self, shape: Shape) -> int:
        number = self._shapes[shape] = len(self._listed_shapes)
        self._listed_shapes.append(shape)
        self._make_room()
        for row in range(len(self._listed_kinds)):
            self._fill(row, number)
        return number

    def fitting(self, kind: int) -> list[int]:
        """Return the shapes that a kind fits, in order."""
        shapes = len(self._listed_shapes)
        known = self._fitting.get(kind)
        if known is None or known[0] != shapes:
            found: list[int] = self._table[kind, :shapes].nonzero()[0].tolist()
            known = self._fitting[kind] = (shapes, found)
        return known[1]

    def fitting_sets(self, kinds: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return for each shape which of some kinds fit it: one bit for each, the first lowest."""
        fits = self._table[list(kinds), : len(self._listed_shapes)]
        sets: npt.NDArray[np.int64] = (1 << np.arange(len(kinds))) @ fits.astype(np.int64)
        return sets

    def fitting_specs(self, kinds: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return for each shape which specs of some kinds fit it: one bit for each, in order."""
        shapes = len(self._listed_shapes)
        if len(kinds) == 1 and len(self._specs[kinds[0]].get(0, ())) == 1:
            return self._table[kinds[0], :shapes].astype(np.int64)
        found, bit = np.zeros(shapes, np.int64), 1
        for kind in kinds:
            passed = self._specs[kind]
            for spec in range(len(passed[0]) if passed else 0):
                fits = [passed[shape][spec] == self._all_passed for shape in self.fitting(kind)]
                found[self.fitting(kind)] += bit * np.array(fits, np.int64)
                bit <<= 1
        return found

    def specs(self, kind: int, shape: int) -> tuple[int, ...]:
        """Return for each spec of a kind how many constraints it passes; not of a mixed kind."""
        return self._specs[kind][shape]

    def _new_kind(self, kind: Kind | frozenset[int]) -> int:
        number = self._kinds[kind] = len(self._listed_kinds)
        self._listed_kinds.append(kind)
        self._specs.append({})
        self._make_room()
        for column in range(len(self._listed_shapes)):
            self._fill(number, column)
        return number

    def _fill(self, row: int, column: int) -> None:
        kind = self._listed_kinds[row]
        if isinstance(kind, Kind):
            passed = self._passed(self._listed_shapes[column], kind)
            self._specs[row][column] = passed
            self._table[row, column] = self._all_passed in passed
        else:
            self._table[row, column] = any(self._table[part, column] for part in kind)

    def _make_room(self) -> None:
        rows, columns = self._table.shape
        if len(self._listed_kinds) > rows or len(self._listed_shapes) > columns:
            rows = rows if len(self._listed_kinds) <= rows else rows * 2
            columns = columns if len(self._listed_shapes) <= columns else columns * 2
            grown = np.zeros((rows, columns), np.bool_)
            grown[: self._table.shape[0], : self._table.shape[1]] = self._table
            self._table = grown
