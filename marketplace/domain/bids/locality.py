"""Near is better: what GPUs of one gang had best have in common, when they are not on one host.

A preference and no condition: it decides between places of one price and one start, so nobody pays
more or waits longer for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from listings.domain.events import OfferPublished

PREFERENCES_MAX = 4
PREFERENCE = re.compile(r"nvlink|region|label\.[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
"""`nvlink`: of each host one NVLink group. `region`, `label.rack`: all in one region, one rack."""


def wants_links(prefer: Sequence[str]) -> bool:
    """Tell if one NVLink group is preferred on each host."""
    return "nvlink" in prefer


def places(prefer: Sequence[str]) -> tuple[str, ...]:
    """Return what the hosts of a gang had best have in common, the most wanted first."""
    return tuple(word for word in prefer if word != "nvlink")


def place_of(offer: OfferPublished, word: str) -> str:
    """Return where an offer is, in that respect; one that does not say is near to nothing else."""
    if word == "region":
        return offer.region
    return dict(offer.labels).get(word.removeprefix("label."), f"host {offer.host_id}")
