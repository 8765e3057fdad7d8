"""Who wins and who loses: what a stretch came to for each business unit and each owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.lab.tally import LeaseTold, Tally

PPM = 1_000_000
Side = Literal["consumer", "owner"]
Who = tuple[Side, str]


@dataclass(slots=True)
class Party:
    """What a stretch came to for one. GPU-time of leases granted in it, whole.

    bids, grants, wait_seconds: of a business unit; wait: of all its leases together. nanos: what a
    unit gains (limits less prices), what an owner earns (prices less the fee).
    """

    bids: int = 0
    grants: int = 0
    gpu_millis: int = 0
    wait_seconds: int = 0
    nanos: int = 0

    @property
    def wait_mean_seconds(self) -> int | None:
        """Return the mean wait of its leases; None without any."""
        return self.wait_seconds // self.grants if self.grants else None


@dataclass(frozen=True, slots=True)
class Swing:
    """One party before and after: under the present rules, and under the others.

    who: the id of a business unit that bids, or of an organisation that lists.
    """

    side: Side
    who: str
    before: Party
    after: Party

    @property
    def gpu_millis(self) -> int:
        """Return how much GPU-time more it has, or leases out."""
        return self.after.gpu_millis - self.before.gpu_millis

    @property
    def nanos(self) -> int:
        """Return how much money it is better off."""
        return self.after.nanos - self.before.nanos

    @property
    def fares(self) -> Literal["wins", "loses", "same"]:
        """Tell who wins: by money, and where that is equal by GPU-time."""
        better = self.nanos or self.gpu_millis
        return "wins" if better > 0 else "loses" if better < 0 else "same"


def parties_of(tally: Tally, *, currency: str, fee_ppm: int) -> dict[Who, Party]:
    """Measure the stretch of a log that was taken in, for each of those in it."""
    found: dict[Who, Party] = {}
    for bid in tally.bids.values():
        if bid.inside:
            found.setdefault(("consumer", str(bid.placed.subscriber_id)), Party()).bids += 1
    for lease in tally.made:
        priced = lease.granted.price.currency == currency and not lease.granted.own
        if lease.bid is not None:
            unit: Who = ("consumer", str(lease.bid.placed.subscriber_id))
            _consumed(found.setdefault(unit, Party()), lease, lease.bid.limit, priced=priced)
        price = lease.granted.price.nanos_per_gpu_hour
        for share in lease.granted.shares:
            owner = found.setdefault(("owner", str(share.owner_id)), Party())
            millis = len(share.gpu_uuids) * lease.millis
            owner.grants += 1
            owner.gpu_millis += millis
            if priced:
                cost = price * millis // MILLIS_PER_HOUR
                owner.nanos += cost - cost * fee_ppm // PPM
    return found


def _consumed(party: Party, lease: LeaseTold, limit: int, *, priced: bool) -> None:
    millis = lease.gpus * lease.millis
    party.grants += 1
    party.gpu_millis += millis
    party.wait_seconds += lease.wait
    if priced:
        gain = limit - lease.granted.price.nanos_per_gpu_hour
        party.nanos += gain * millis // MILLIS_PER_HOUR


def swings(before: Mapping[Who, Party], after: Mapping[Who, Party]) -> tuple[Swing, ...]:
    """Return each party before and after, those that fare otherwise most first."""
    found = [
        Swing(side, who, before.get((side, who), Party()), after.get((side, who), Party()))
        for side, who in before.keys() | after.keys()
    ]
    return tuple(
        sorted(found, key=lambda each: (-abs(each.nanos), -abs(each.gpu_millis), each.who))
    )
