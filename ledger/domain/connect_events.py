"""What happens where owners are paid over Stripe: their accounts there, and transfers to them.

All of it is in the streams payee-<account>, beside the payouts that it is about.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.money import Money

Channel = Literal["bank-file", "stripe"]
"""How a payout goes out."""
ConnectedState = Literal["asked", "details-missing", "ready", "restricted"]
"""asked: it is being made. details-missing: the owner has not told Stripe all yet. ready: transfers
arrive there. restricted: Stripe takes none, or pays none out; its words say why."""
BankPayoutState = Literal["on-its-way", "arrived", "failed"]


class StripeAccountAsked(Event, name="ledger.stripe-account-asked"):
    """An owner wants an account at Stripe to be paid to. country: two letters; empty: ours."""

    account_id: AccountId
    tenant_id: TenantId
    currency: str
    country: str
    by_user: UserId
    at: datetime


class StripeAccountMade(Event, name="ledger.stripe-account-made"):
    """The owner has an account at Stripe. connected: its id there; it stays the same for ever."""

    account_id: AccountId
    connected: str
    at: datetime


class StripeAccountSeen(Event, name="ledger.stripe-account-seen"):
    """Stripe said how an owner's account stands. missing: what it wants to know, in its words."""

    account_id: AccountId
    state: ConnectedState
    missing: tuple[str, ...]
    words: str
    at: datetime


class PayoutChannelChosen(Event, name="ledger.payout-channel-chosen"):
    """From now on an owner's payouts go out this way.

    usable_from: until then none does: anybody of the owner may choose otherwise meanwhile.
    """

    account_id: AccountId
    channel: Channel
    usable_from: datetime
    by_user: UserId
    at: datetime


class TransferWaited(Event, name="ledger.transfer-waited"):
    """Stripe made no transfer since our balance there is too low: it is asked again later.

    tries: how often it was asked. Each try has a key of its own at Stripe, which answers as before
    where a key comes again.
    """

    account_id: AccountId
    payout_id: UUID
    tries: int
    reason: str
    again_at: datetime
    at: datetime


class TransferReversalAsked(Event, name="ledger.transfer-reversal-asked"):
    """Finance wants a part of a transfer back. number: counts them in the payout."""

    account_id: AccountId
    payout_id: UUID
    number: int
    money: Money
    reason: str
    by_user: UserId
    at: datetime


class TransferReversalFailed(Event, name="ledger.transfer-reversal-failed"):
    """Stripe gives nothing back: the owner's account there has too little, for example."""

    account_id: AccountId
    payout_id: UUID
    number: int
    reason: str
    at: datetime


class TransferReversed(Event, name="ledger.transfer-reversed"):
    """A part of a transfer, or all of it, came back: it is the owner's earnings again.

    The postings sum to zero: cash down, the earnings up. corrects: the entry of the payment.
    number: which request it answers; 0: it was made at Stripe itself. reference: its id there.
    """

    account_id: AccountId
    entry_id: EntryId
    payout_id: UUID
    number: int
    corrects: EntryId
    money: Money
    reference: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


class BankPayoutSeen(Event, name="ledger.bank-payout-seen"):
    """Stripe paid an owner's balance there out to the owner's bank, or failed to.

    It moves nothing in our books: the money was the owner's already. reference: its id at Stripe.
    """

    account_id: AccountId
    reference: str
    state: BankPayoutState
    money: Money
    arrives_on: date
    words: str
    at: datetime


AccountAtStripeEvent = StripeAccountAsked | StripeAccountMade | StripeAccountSeen
TransferEvent = TransferWaited | TransferReversalAsked | TransferReversalFailed | TransferReversed
ConnectEvent = AccountAtStripeEvent | PayoutChannelChosen | TransferEvent | BankPayoutSeen
