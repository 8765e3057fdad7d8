"""How thoroughly cards are probed between leases, and how long that may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["off", "short", "long"]
LEVELS: tuple[Level, ...] = ("off", "short", "long")


@dataclass(frozen=True, slots=True)
class Extent:
    """seconds: by which a probe is over, or the card has failed it. mib: of memory that it tries.

    A short one takes a second or two, most of it for a context where no process keeps the driver
    awake; its bound leaves room for a host whose processors are busy.
    """

    seconds: int
    mib: int


EXTENTS: dict[Level, Extent] = {
    "short": Extent(seconds=20, mib=512),
    "long": Extent(seconds=60, mib=1 << 20),
}
"""The long one tries nine tenths of what is free."""
