"""What a usage charge is for, as bills and exports name it: the model, and the parts of cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ledger.domain.money import Rate

ShareKind = Literal["mig", "mps", "timeslice"]
"""By what a card was divided."""


@dataclass(frozen=True, slots=True)
class CardShare:
    """A part of a card that was leased by itself: `part` of `whole`, as its card is divided.

    card: the id of the card that others may have parts of. part, whole: slices of compute by MIG,
    percent of it by MPS and time slices.
    """

    card: str
    kind: ShareKind
    part: int
    whole: int


@dataclass(frozen=True, slots=True)
class UsageItem:
    """What was used, as bills and exports name it. Empty and None: not known.

    sku: the GPU model or slice. list_price: what the owner asked before the market cleared.
    provider: the cloud, where capacity was rented. shares: the parts of cards among its GPUs, one
    for each; empty where all of them are whole cards.
    """

    sku: str = ""
    region: str = ""
    service_class: str = ""
    provider: str = ""
    list_price: Rate | None = None
    shares: tuple[CardShare, ...] = ()
