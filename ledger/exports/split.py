"""Charges for parts of a card, in the columns that FOCUS 1.3 has for costs that are split.

What is charged is the time of a share, at the price of a share: nothing is split afterwards, and
the part of a card that nobody leased is charged to nobody. So of one card and hour the ratios of
all charges add up to 1 where all of it was leased, and to less where it was not.
"""

from __future__ import annotations

import json
from functools import lru_cache

from ledger.domain.usage_items import CardShare
from ledger.eventstore.codec import decode_as

METHODS = {
    "mig": ("offpeak:mig-slices", "Slices"),
    "mps": ("offpeak:mps-percent", "Percent"),
    "timeslice": ("offpeak:timeslice-percent", "Percent"),
}
"""By what a card was divided: AllocatedMethodId, and what its parts are counted in."""
RATIO_PLACES = 12
KNOWN = 4_096

Row = dict[str, str]


def shared_part(text: str, *, tags: str) -> Row:
    """Return what is told of the shares that a charge is for; ResourceId only where it is one card.

    text: the shares, as the event has them.
    """
    shares = _shares(text)
    method, unit = METHODS[shares[0].kind]
    row = {
        "AllocatedMethodDetails": _details(shares, unit),
        "AllocatedMethodId": method,
        "AllocatedTags": tags,
    }
    card = _one_card(shares)
    if card is None:
        return row
    return row | {
        "ResourceId": f"offpeak:gpu/{card}",
        "ResourceName": f"GPU {card}",
        "ResourceType": "Shared GPU",
    }


def allocate(own: Row, text: str) -> None:
    """Say in a charge's own columns that the lease is what its card's cost is allocated to."""
    for name in ("ResourceId", "ResourceName"):
        own[f"Allocated{name}"] = own[name]
        if _one_card(_shares(text)) is not None:
            del own[name]  # that of the card is among what is shared


@lru_cache(KNOWN)
def _shares(text: str) -> tuple[CardShare, ...]:
    return decode_as(tuple[CardShare, ...], text.encode())


def _one_card(shares: tuple[CardShare, ...]) -> str | None:
    """Return the card that all shares are of; None: they are of several."""
    card = shares[0].card
    return card if all(each.card == card for each in shares) else None


def _details(shares: tuple[CardShare, ...], unit: str) -> str:
    elements = ",".join(
        f'{{"AllocatedRatio":{_ratio(each)},"UsageQuantity":{each.part},"UsageUnit":"{unit}"'
        f',"x_Card":{json.dumps(each.card)}}}'
        for each in shares
    )
    return f'{{"Elements":[{elements}]}}'


def _ratio(share: CardShare) -> str:
    """Return a share's part of its card as a number between 0 and 1, rounded half up."""
    scale = 10**RATIO_PLACES
    scaled = (2 * share.part * scale + share.whole) // (2 * share.whole)
    return f"{scaled // scale}.{scaled % scale:0{RATIO_PLACES}d}".rstrip("0").rstrip(".")
