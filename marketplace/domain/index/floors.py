"""What new supply asks for, shape by shape: which bids that wait can pay for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from marketplace.domain.index.free_levels import seen
from marketplace.domain.kernels.layout import Bools, Ints

NOTHING = 1 << 62
"""A floor that says that nothing fits."""


@dataclass(frozen=True, slots=True)
class OneFloor:
    """The floor of one offer. kind: its number; fitting: the shapes that it fits; fits: the same,
    by number of the shape. The list is the same object until there are more shapes."""

    kind: int
    fitting: Sequence[int]
    fits: Bools
    floor: int


class Floors:
    """The lowest floors for shapes of bids, by number. one: of one offer."""

    def __init__(self, lowest: Mapping[int, int], shapes: int, one: OneFloor | None = None) -> None:
        self._lowest, self._shapes = lowest, shapes
        self.one = one

    @classmethod
    def alike(cls, kind: int, fitting: Sequence[int], fits: Bools, floor: int) -> Floors:
        """Return the floors of one offer: see `OneFloor`."""
        return cls({}, len(fits), OneFloor(kind, fitting, fits, floor))

    @property
    def lowest(self) -> Mapping[int, int]:
        """Return the floor of each shape that anything fits."""
        one = self.one
        return self._lowest if one is None else dict.fromkeys(one.fitting, one.floor)

    @property
    def by_shape(self) -> Ints:
        """Return the floor of each shape; `NOTHING` where none fits."""
        found = np.full(self._shapes, NOTHING, np.int64)
        view = seen(found)
        for shape, floor in self.lowest.items():
            view[shape] = floor
        return found

    @property
    def of_nothing(self) -> Floors:
        """Return floors of nothing in place of all: what owners ask of themselves."""
        return Floors(dict.fromkeys(self.lowest, 0), self._shapes)
