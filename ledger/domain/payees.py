"""An owner who is paid: where to, how often, and every payout from request to the bank's word.

requested -> approved -> sent -> paid, or cancelled before it is sent; the bank may return it, sent
or paid, and the money is earnings again. One stream decides all payouts of one earnings account,
so the same money cannot be paid twice: what was paid out is counted here, never read from a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import ClassVar, Literal, assert_never
from uuid import UUID, uuid5

from ledger.domain.connect_events import (
    BankPayoutSeen,
    Channel,
    ConnectEvent,
    PayoutChannelChosen,
    StripeAccountAsked,
    StripeAccountMade,
    StripeAccountSeen,
    TransferEvent,
    TransferReversalAsked,
    TransferReversalFailed,
    TransferReversed,
    TransferWaited,
)
from ledger.domain.connected import Connected
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.journal import transfer
from ledger.domain.payout_events import (
    BankDetailsConfirmed,
    BankDetailsProposed,
    BankDetailsWithdrawn,
    PayeeEvent,
    PayoutApproved,
    PayoutCancelled,
    PayoutPaid,
    PayoutRequested,
    PayoutReturned,
    PayoutScheduleSet,
    PayoutSent,
)
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown

PayoutState = Literal["requested", "approved", "sent", "paid", "cancelled", "returned"]


class PayoutUnknown(Unknown):
    """There is no such payout."""


class PayoutStateOtherwise(Refusal):
    """The payout is not in the state that this takes.

    It is requested, approved, sent to the bank and paid, in this order; cancelled only before it is
    sent, and returned only after.
    """


class OwnPayout(Forbidden):
    """Nobody approves a payout that they asked for, or that goes to an organisation of theirs.

    Another person with the platform's finance or operator role has to.
    """


class ApprovedBySame(Forbidden):
    """You approved this payout already, and one this large takes two people."""


class PayoutPaidOtherwise(Refusal):
    """The payout was paid under another reference or on another day, as recorded before."""


class ReasonMissing(Invalid):
    """Say why, in words for whoever reads it later."""


class PayoutsPaused(Refusal):
    """The bank account was changed: nothing is sent until that is confirmed or withdrawn."""


class PaidOverStripe(Refusal):
    """This owner chose to be paid over Stripe: the payout goes there once it is approved."""


class StripeDecides(Refusal):
    """This payout went out over Stripe, which tells itself what becomes of it.

    What is to come back is asked of Stripe: reverse the transfer.
    """


class DetailsMissing(Refusal):
    """Nobody has said yet to which bank account this owner is paid."""


@dataclass(frozen=True, slots=True)
class Payout:
    """One payout as it stands.

    waited: the last time that Stripe had too little to transfer. asked_back: what is to come back
    of a transfer, by number; `None` once that is decided. came_back: what did, by its id there.
    """

    requested: PayoutRequested
    state: PayoutState = "requested"
    approved_by: tuple[UserId, ...] = ()
    batch_id: UUID | None = None
    paid: PayoutPaid | None = None
    sent: PayoutSent | None = None
    waited: TransferWaited | None = None
    asked_back: Mapping[int, TransferReversalAsked | None] = field(default_factory=dict)
    came_back: Mapping[str, int] = field(default_factory=dict)

    @property
    def channel(self) -> Channel | None:
        """Return how it went out; None: it did not yet."""
        return None if self.sent is None else self.sent.channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Payee:
    """One owner's earnings account, as far as paying it out goes. paid_out: nano-units, net."""

    STREAM: ClassVar[str] = "payee"

    details: BankDetailsProposed | None = None
    proposed: BankDetailsProposed | None = None
    schedule: PayoutScheduleSet | None = None
    connected: Connected | None = None
    chosen: PayoutChannelChosen | None = None
    bank_payouts: Mapping[str, str] = field(default_factory=dict)
    """At Stripe, of this owner: the state of each by its id."""
    payouts: Mapping[UUID, Payout] = field(default_factory=dict)
    revisions: Mapping[str, int] = field(default_factory=dict)
    paid_out: int = 0

    @classmethod
    def evolve(cls, state: Payee | None, event: PayeeEvent, /) -> Payee:
        """Return the payee after `event`."""
        state = state or cls()
        match event:
            case BankDetailsProposed():
                return replace(state, proposed=event)
            case BankDetailsConfirmed():
                return replace(state, details=state.proposed, proposed=None)
            case BankDetailsWithdrawn():
                return replace(state, proposed=None)
            case PayoutScheduleSet():
                return replace(state, schedule=event)
            case PayoutRequested():
                revisions = {**state.revisions, event.period: event.revision}
                after = state._with(event.payout_id, Payout(event), event.money.nanos)
                return replace(after, revisions=revisions)
            case PayoutApproved():
                before = state.payouts[event.payout_id]
                people = (*before.approved_by, event.by_user)
                is_enough = len(people) >= before.requested.approvals_needed
                reached: PayoutState = "approved" if is_enough else "requested"
                return state._with(
                    event.payout_id, replace(before, approved_by=people, state=reached)
                )
            case PayoutSent():
                before = state.payouts[event.payout_id]
                sent = replace(before, state="sent", batch_id=event.batch_id, sent=event)
                return state._with(event.payout_id, sent)
            case PayoutPaid():
                before = state.payouts[event.payout_id]
                return state._with(event.payout_id, replace(before, state="paid", paid=event))
            case PayoutCancelled():
                before = replace(state.payouts[event.payout_id], state="cancelled")
                return state._with(event.payout_id, before, -event.money.nanos)
            case PayoutReturned():
                before = replace(state.payouts[event.payout_id], state="returned")
                return state._with(event.payout_id, before, -event.money.nanos)
            case event if isinstance(event, ConnectEvent):
                return state._connected(event)
            case _:
                assert_never(event)

    def _connected(self, event: ConnectEvent) -> Payee:
        """Return the payee after something happened at Stripe."""
        match event:
            case PayoutChannelChosen():
                return replace(self, chosen=event)
            case BankPayoutSeen():
                seen = {**self.bank_payouts, event.reference: event.state}
                return replace(self, bank_payouts=seen)
            case StripeAccountAsked() | StripeAccountMade() | StripeAccountSeen():
                return replace(self, connected=Connected.evolve(self.connected, event))
            case TransferReversed():
                after = _transferred(self.payouts[event.payout_id], event)
                return self._with(event.payout_id, after, -event.money.nanos)
            case _:
                after = _transferred(self.payouts[event.payout_id], event)
                return self._with(event.payout_id, after)

    @property
    def channel(self) -> Channel:
        """Return how this owner's payouts go out."""
        return "bank-file" if self.chosen is None else self.chosen.channel

    def _with(self, payout_id: UUID, payout: Payout, moved: int = 0) -> Payee:
        return replace(
            self,
            payouts={**self.payouts, payout_id: payout},
            paid_out=self.paid_out + moved,
        )

    def payout(self, payout_id: UUID) -> Payout:
        """Return a payout. Raises: PayoutUnknown."""
        if payout_id not in self.payouts:
            raise PayoutUnknown(payout_id=payout_id)
        return self.payouts[payout_id]

    def needed(self, payout_id: UUID, *states: PayoutState) -> Payout:
        """Return a payout in one of these states. Raises: PayoutUnknown, PayoutStateOtherwise."""
        found = self.payout(payout_id)
        if found.state not in states:
            raise PayoutStateOtherwise(
                payout_id=payout_id, state=found.state, needed=" or ".join(states)
            )
        return found


def _transferred(before: Payout, event: TransferEvent) -> Payout:
    """Return a payout after something happened to its transfer."""
    match event:
        case TransferWaited():
            return replace(before, waited=event)
        case TransferReversalAsked():
            return replace(before, asked_back={**before.asked_back, event.number: event})
        case TransferReversalFailed():
            return replace(before, asked_back={**before.asked_back, event.number: None})
        case TransferReversed():
            came = {**before.came_back, event.reference: event.money.nanos}
            asked = {**before.asked_back, **({event.number: None} if event.number else {})}
            is_all = sum(came.values()) >= before.requested.money.nanos
            reached: PayoutState = "returned" if is_all else before.state
            return replace(before, came_back=came, asked_back=asked, state=reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayeeOf:
    """Whose earnings account it is."""

    account_id: AccountId
    tenant_id: TenantId
    currency: str


def payout_named(account_id: AccountId, period: str, revision: int) -> UUID:
    """Return the id of a payout: it follows from what is settled."""
    return uuid5(account_id, f"payout:{period}:{revision}")


def entry_of(payout_id: UUID, step: str) -> EntryId:
    """Return the id of the entry of one step of a payout."""
    return EntryId(uuid5(payout_id, step))


def approve(
    payee: Payee, payout_id: UUID, *, by_user: UserId, is_own: bool, now: datetime
) -> list[PayoutApproved]:
    """Decide whether a person may approve a payout. is_own: it goes to an organisation of theirs.

    Raises: PayoutUnknown, PayoutStateOtherwise, OwnPayout, ApprovedBySame.
    """
    payout = payee.payout(payout_id)
    if payout.state == "approved" and by_user in payout.approved_by:
        return []
    payee.needed(payout_id, "requested")
    if is_own or payout.requested.requested_by == by_user:
        raise OwnPayout(payout_id=payout_id)
    if by_user in payout.approved_by:
        raise ApprovedBySame(payout_id=payout_id)
    account_id = payout.requested.account_id
    return [PayoutApproved(account_id=account_id, payout_id=payout_id, by_user=by_user, at=now)]


def cancel(
    payee: Payee, payout_id: UUID, *, reason: str, by_user: UserId, now: datetime
) -> list[PayoutCancelled]:
    """Decide that a payout which was not sent yet will not go out.

    Raises: PayoutUnknown, PayoutStateOtherwise, ReasonMissing, TextUnreadable.
    """
    if payee.payout(payout_id).state == "cancelled":
        return []
    asked = payee.needed(payout_id, "requested", "approved").requested
    return [
        PayoutCancelled(
            account_id=asked.account_id,
            entry_id=entry_of(payout_id, "cancelled"),
            payout_id=payout_id,
            corrects=asked.entry_id,
            money=asked.money,
            reason=need_reason(reason),
            postings=transfer(source=_transit(asked), target=asked.account_id, money=asked.money),
            by_user=by_user,
            at=now,
        )
    ]


def send(
    payee: Payee,
    payout_id: UUID,
    *,
    channel: Channel,
    batch_id: UUID,
    details_id: UUID,
    by_user: UserId,
    now: datetime,
) -> list[PayoutSent]:
    """Decide whether a payout may go out in a batch, to the bank account that the batch names.

    Raises: PayoutUnknown, PayoutStateOtherwise, PayoutsPaused, DetailsMissing.
    """
    payout = payee.payout(payout_id)
    if payout.state == "sent" and payout.batch_id == batch_id:
        return []
    payee.needed(payout_id, "approved")
    if payee.channel != channel:
        raise PaidOverStripe(payout_id=payout_id)
    if payee.proposed is not None:
        raise PayoutsPaused(payout_id=payout_id, usable_from=payee.proposed.usable_from)
    if payee.details is None or payee.details.details_id != details_id:
        raise DetailsMissing(payout_id=payout_id)
    return [
        PayoutSent(
            account_id=payout.requested.account_id,
            payout_id=payout_id,
            channel=channel,
            batch_id=batch_id,
            details_id=details_id,
            by_user=by_user,
            at=now,
        )
    ]


def pay(
    payee: Payee,
    payout_id: UUID,
    *,
    reference: str,
    paid_on: date,
    cash: AccountId,
    by_user: UserId,
    now: datetime,
    channel: Channel = "bank-file",
) -> list[PayoutPaid]:
    """Decide that the bank paid a payout, once. channel: who says so.

    Raises: PayoutUnknown, PayoutStateOtherwise, PayoutPaidOtherwise, StripeDecides, ReasonMissing,
        TextUnreadable.
    """
    payout = _by(payee.payout(payout_id), channel)
    if payout.state == "paid" and payout.paid is not None:
        if (payout.paid.reference, payout.paid.paid_on) != (reference.strip(), paid_on):
            raise PayoutPaidOtherwise(
                reference=payout.paid.reference, paid_on=payout.paid.paid_on.isoformat()
            )
        return []
    asked = payee.needed(payout_id, "sent").requested
    return [
        PayoutPaid(
            account_id=asked.account_id,
            entry_id=entry_of(payout_id, "paid"),
            payout_id=payout_id,
            money=asked.money,
            reference=need_reason(reference),
            paid_on=paid_on,
            postings=transfer(source=_transit(asked), target=cash, money=asked.money),
            by_user=by_user,
            at=now,
        )
    ]


def give_back(
    payee: Payee,
    payout_id: UUID,
    *,
    reason: str,
    cash: AccountId,
    by_user: UserId,
    now: datetime,
    channel: Channel = "bank-file",
) -> list[PayoutReturned]:
    """Decide that the bank returned a payout, sent or paid: it is earnings again.

    Raises: PayoutUnknown, PayoutStateOtherwise, StripeDecides, ReasonMissing, TextUnreadable.
    """
    if _by(payee.payout(payout_id), channel).state == "returned":
        return []
    payout = payee.needed(payout_id, "sent", "paid")
    asked, was_paid = payout.requested, payout.paid is not None
    return [
        PayoutReturned(
            account_id=asked.account_id,
            entry_id=entry_of(payout_id, "returned"),
            payout_id=payout_id,
            corrects=payout.paid.entry_id if payout.paid else asked.entry_id,
            money=asked.money,
            reason=need_reason(reason),
            was_paid=was_paid,
            postings=transfer(
                source=cash if was_paid else _transit(asked),
                target=asked.account_id,
                money=asked.money,
            ),
            by_user=by_user,
            at=now,
        )
    ]


def _by(payout: Payout, channel: Channel) -> Payout:
    if payout.channel == "stripe" and channel != "stripe":
        raise StripeDecides(payout_id=payout.requested.payout_id)
    return payout


def _transit(asked: PayoutRequested) -> AccountId:
    """Return the account on which a payout's money is while it is on its way."""
    return next(line.account_id for line in asked.postings if line.nanos > 0)


def need_reason(text: str) -> str:
    """Return a reason without blanks around it. Raises: ReasonMissing, TextUnreadable."""
    text = text.strip()
    if not text:
        raise ReasonMissing()
    need_text(text, length_max=TEXT_LENGTH_MAX)
    return text
