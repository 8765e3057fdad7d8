"""A hold: money set aside for one bid or lease, and what metered use may take from it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias
from unicodedata import category

from ledger.domain import journal
from ledger.domain.agreed_rates import HoldRepriced, RateSince, rate_at
from ledger.domain.dispute_events import UseCredited
from ledger.domain.events import (
    HoldPlaced,
    HoldReleased,
    HoldResized,
    OwnerUse,
    SlaCredited,
    UsageCaptured,
)
from ledger.domain.given_back import NOTHING_GIVEN, GivenBack
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.money import NANOS_MAX, Money, Rate
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem

FEE_PPM_MAX = 1_000_000
GPU_MILLIS_MAX = 10**15
ENERGY_MJ_MAX = 10**18
"""Of one usage window: a hundred thousand GPUs for a hundred days."""
WEIGHT_MAX = 2**62


TEXT_LENGTH_MAX = 200
COST_CENTRE_LENGTH_MAX = 60
ITEM_LENGTH_MAX = 80
SERVICE_CLASS_LENGTH_MAX = 20
UNWRITABLE = ("Cc", "Cs")
"""Unicode categories that no text may hold: control characters and halves of surrogate pairs."""


class HoldUnknown(Unknown):
    """There is no such hold on this account."""


class HoldPlacedOtherwise(Refusal):
    """This hold was placed already, on other terms."""


class HoldClosed(Refusal):
    """This hold was released and can no longer change."""


class HoldBelowCaptured(Refusal):
    """A hold cannot shrink below what was already captured from it."""


class HoldExceeded(Refusal):
    """The use costs more than the hold set aside for it.

    Resize the hold first, which needs the funds to be available.
    """


class UsageTermsChanged(Refusal):
    """A hold is charged for one lease, at its price and one fee.

    Only both sides of the lease together change its price.
    """


class UsageOverlaps(Refusal):
    """Part of this usage window was charged already."""


class UsageUnreadable(Invalid):
    """The use in a window is a whole number of GPU-milliseconds that its owners' parts add up to.

    Name each owner once. The fee is between 0 and 1 000 000 ppm, the prices are not negative
    and in one currency.
    """


class TextUnreadable(Invalid):
    """A name or reference is a short text without control characters."""


def need_text(*texts: str, length_max: int) -> None:
    """Refuse a text that is too long, or that a table or a spreadsheet could not hold.

    Raises: TextUnreadable.
    """
    for text in texts:
        if len(text) <= length_max and text.isascii() and text.isprintable():
            continue  # most are: nothing to look up for each character
        if len(text) > length_max or any(category(each) in UNWRITABLE for each in text):
            raise TextUnreadable(length_max=length_max, given=ascii(text[:40]))


def _weighed(owners: Sequence[OwnerUse]) -> bool:
    """Tell if all owners have a weight, of which one is above zero, or none has."""
    weights = [use.weight for use in owners if use.weight is not None]
    return not weights or (
        len(weights) == len(owners) and min(weights) >= 0 and 0 < sum(weights) <= WEIGHT_MAX
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is to be charged: a metered window of a lease and the terms of the lease.

    correction, energy_mj: as in UsageCaptured.
    """

    hold_id: HoldId
    lease_id: LeaseId
    window: Window
    gpu_millis: int
    price: Rate
    fee_ppm: int
    owners: tuple[OwnerUse, ...]
    cost_centre: str
    item: UsageItem
    correction: int = 0
    energy_mj: int | None = None

    @property
    def terms(self) -> tuple[LeaseId, int]:
        """Return what must be the same for every window that is charged to one hold."""
        return (self.lease_id, self.fee_ppm)

    def check(self) -> None:
        """Refuse figures that cannot be.

        Raises: UsageUnreadable, TextUnreadable.
        """
        item = self.item
        need_text(self.cost_centre, length_max=COST_CENTRE_LENGTH_MAX)
        need_text(item.sku, item.region, item.provider, length_max=ITEM_LENGTH_MAX)
        need_text(item.service_class, length_max=SERVICE_CLASS_LENGTH_MAX)
        need_text(*(each.card for each in item.shares), length_max=TEXT_LENGTH_MAX)
        list_price = item.list_price or self.price
        by_owner = [use.gpu_millis for use in self.owners]
        sensible = (
            0 <= self.gpu_millis <= GPU_MILLIS_MAX
            and 0 <= self.fee_ppm <= FEE_PPM_MAX
            and 0 <= self.price.nanos_per_gpu_hour <= NANOS_MAX
            and 0 <= list_price.nanos_per_gpu_hour <= NANOS_MAX
            and list_price.currency == self.price.currency
            and all(millis >= 0 for millis in by_owner)
            and 0 <= (self.energy_mj or 0) <= ENERGY_MJ_MAX
            and all(0 < each.part <= each.whole for each in item.shares)
            and _weighed(self.owners)
            and sum(by_owner) == self.gpu_millis
            and len({use.owner_id for use in self.owners}) == len(self.owners)
        )
        if not sensible:
            raise UsageUnreadable(gpu_millis=self.gpu_millis, owners_millis=by_owner)

    def was(self, event: UsageCaptured) -> bool:
        """Tell if this very use, on these terms, is what `event` charged."""
        return (
            event.hold_id == self.hold_id
            and (event.lease_id, event.fee_ppm) == self.terms
            and event.price == self.price
            and (event.window, event.gpu_millis) == (self.window, self.gpu_millis)
            and (event.owners, event.cost_centre) == (self.owners, self.cost_centre)
            and event.correction == self.correction
        )


Rated: TypeAlias = tuple[Money, Money]
"""What a usage window costs, and what part of it is the platform's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Money set aside, and what was taken from it so far.

    placed: the amount first asked for. money: the amount now, what was captured included.
    terms, windows, millis: of the use captured so far; millis: of GPU-time, by price.
    first_price: of its use, as far as it is known; repriced: what was agreed since, in order.
    given_back: what of the use captured went back since.
    """

    hold_id: HoldId
    placed: Money
    purpose: str
    money: Money
    captured: Money
    millis: Mapping[Rate, int] = field(default_factory=dict)
    terms: tuple[LeaseId, int] | None = None
    first_price: Rate | None = None
    repriced: tuple[RateSince, ...] = ()
    windows: tuple[Window, ...] = ()
    released: bool = False
    given_back: GivenBack = NOTHING_GIVEN

    @property
    def remaining(self) -> Money:
        """Return what the hold still sets aside; nothing once it is released."""
        zero = Money(0, self.money.currency)
        return zero if self.released else self.money - self.captured

    @property
    def gpu_millis(self) -> int:
        """Return what was used in all, at whatever price."""
        return sum(self.millis.values())

    def price_at(self, moment: datetime) -> Rate | None:
        """Return what use that begins then is charged at; None: nothing is known of its price."""
        if self.first_price is None:
            return None
        return rate_at(self.first_price, self.repriced, moment)

    def rate(self, usage: Usage) -> Rated:
        """Decide what a usage window costs and what part of it is the platform's.

        Raises: UsageTermsChanged, UsageOverlaps, HoldExceeded.
        """
        agreed = self.price_at(usage.window.starts_at)
        if self.terms not in (None, usage.terms) or agreed not in (None, usage.price):
            raise UsageTermsChanged(hold_id=self.hold_id)
        # A correction adds to what was charged, by its own number and once.
        charged_before = () if usage.correction else self.windows
        if any(window.overlaps(usage.window) for window in charged_before):
            raise UsageOverlaps(hold_id=self.hold_id)
        charged = journal.rate(
            usage.price,
            millis_before=self.millis.get(usage.price, 0),
            gpu_millis=usage.gpu_millis,
        )
        left = self.money - self.captured
        if charged > left:
            raise HoldExceeded(charged=charged, left=left)
        return charged, journal.next_fee(self.captured, charged, fee_ppm=usage.fee_ppm)

    def after(self, event: UsageCaptured) -> Hold:
        """Return the hold after a capture."""
        return replace(
            self,
            captured=self.captured + event.charged,
            millis={**self.millis, event.price: self.millis.get(event.price, 0) + event.gpu_millis},
            terms=(event.lease_id, event.fee_ppm),
            first_price=self.first_price or event.price,
            windows=self.windows if event.correction else (*self.windows, event.window),
        )


HoldEvent = HoldPlaced | HoldResized | HoldRepriced | HoldReleased | UsageCaptured
"""What happens to a hold."""
HOLD_KINDS = (
    *(HoldPlaced, HoldResized, HoldRepriced, HoldReleased),
    *(UsageCaptured, SlaCredited, UseCredited),
)


def hold_after(before: Hold | None, event: HoldEvent | SlaCredited | UseCredited) -> Hold:
    """Return a hold after something happened to it; before: None where it is just placed."""
    if isinstance(event, HoldPlaced):
        return Hold(
            hold_id=event.hold_id,
            placed=event.money,
            purpose=event.purpose,
            money=event.money,
            captured=Money(0, event.money.currency),
        )
    assert before is not None, "a hold is placed first"
    match event:
        case HoldResized():
            return replace(before, money=event.money)
        case HoldRepriced():
            return replace(
                before,
                first_price=before.first_price or event.before,
                repriced=(*before.repriced, RateSince(event.since, event.price)),
            )
        case HoldReleased():
            return replace(before, released=True)
        case UsageCaptured():
            return before.after(event)
        case SlaCredited():
            given = before.given_back.after_miss(event, before.captured)
            return replace(before, given_back=given)
        case UseCredited():
            return replace(before, given_back=before.given_back.after_dispute(event.money))


def note_given_back(holds: MutableMapping[HoldId, Hold], event: object) -> None:
    """Note what an entry gave back of the use that was captured from a hold, if it did."""
    if isinstance(event, SlaCredited | UseCredited) and event.hold_id is not None:
        holds[event.hold_id] = hold_after(holds[event.hold_id], event)
