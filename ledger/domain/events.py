"""Every fact of the book of record: who takes part, and whose money moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.agreed_rates import HoldRepriced
from ledger.domain.event import Event
from ledger.domain.ids import (
    AccountId,
    EntryId,
    HoldId,
    HostId,
    InvitationId,
    LeaseId,
    SubscriberId,
    TenantId,
    TokenId,
    UserId,
)
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem

Role = Literal["owner", "operator", "consumer", "finance", "auditor"]
"""owner lists capacity; consumer bids; finance sees money; operator governs; auditor reads all."""

PlatformKind = Literal[
    "fees", "cash", "burst", "payouts", "rounding", "tax", "stripe-fees", "bad-debts"
]
AccountKind = Literal["prepaid", "chargeback", "earnings", PlatformKind]
"""prepaid: a wallet that must cover its holds. chargeback: an internal cost centre, with a budget
or without. earnings: what an owner is owed. fees: the platform's share. cash: the outside world,
the other side of top-ups. burst: what clouds cost. payouts: what is on its way to owners.
rounding: what invoices were rounded by. tax: what is owed to the state. stripe-fees: what taking
cards costs. bad-debts: what was owed and given up."""


# --- parties: streams tenant-<tenant_id>, token-<token_id> -----------------------------------


class TenantRegistered(Event, name="ledger.tenant-registered"):
    """An organisation joined. Exactly one tenant is the platform's own."""

    tenant_id: TenantId
    slug: str
    title: str
    currency: str
    is_platform: bool
    at: datetime


class SubscriberRegistered(Event, name="ledger.subscriber-registered"):
    """A business unit of a tenant was set up; its use is charged to `cost_centre`."""

    tenant_id: TenantId
    subscriber_id: SubscriberId
    title: str
    cost_centre: str
    at: datetime


class MemberAdmitted(Event, name="ledger.member-admitted"):
    """A person may act for a tenant, in these roles; `subscriber_id` is the unit they bid for."""

    tenant_id: TenantId
    user_id: UserId
    subscriber_id: SubscriberId | None
    roles: tuple[Role, ...]
    at: datetime


class MemberRemoved(Event, name="ledger.member-removed"):
    """A person may no longer act for a tenant. Their tokens for it stop working."""

    tenant_id: TenantId
    user_id: UserId
    at: datetime


class SecondFactorRemoved(Event, name="ledger.second-factor-removed"):
    """An operator removed the second factor of a member who had lost it.

    From then on a password is enough for the person's log-in, until they set up another factor.
    """

    tenant_id: TenantId
    user_id: UserId
    at: datetime


class MemberInvited(Event, name="ledger.member-invited"):
    """A person got a link by which they may join a tenant in these roles, once, until `expires_at`.

    Only the hash of the link's secret is kept. by_mail: the link went to the person's address and
    was shown to nobody, so whoever uses it reads that mail. invited_by: the operator who did it.
    """

    tenant_id: TenantId
    invitation_id: InvitationId
    user_id: UserId
    invited_by: UserId
    roles: tuple[Role, ...]
    subscriber_id: SubscriberId | None
    by_mail: bool
    prefix: str
    sha256: str
    expires_at: datetime
    at: datetime


class InvitationAccepted(Event, name="ledger.invitation-accepted"):
    """The invited person took the invitation up; its link works no more."""

    tenant_id: TenantId
    invitation_id: InvitationId
    at: datetime


class InvitationRevoked(Event, name="ledger.invitation-revoked"):
    """An invitation was taken back before it was accepted; its link works no more."""

    tenant_id: TenantId
    invitation_id: InvitationId
    at: datetime


class TokenIssued(Event, name="ledger.token-issued", version=2, grown_from=1):
    """A person made an API token, or an owner a token for the agent of one host.

    Only the hash of the secret is kept. Exactly one of `user_id` and `host_id` is set.
    succeeds: the token in whose place an agent asked for this one.
    """

    token_id: TokenId
    tenant_id: TenantId
    user_id: UserId | None
    host_id: HostId | None
    title: str
    prefix: str
    sha256: str
    scopes: tuple[str, ...]
    expires_at: datetime
    at: datetime
    succeeds: TokenId | None = None


class TokenSucceeded(Event, name="ledger.token-succeeded"):
    """An agent asked for another token in place of its own, which works on until then at most."""

    token_id: TokenId
    successor_id: TokenId
    works_until: datetime
    at: datetime


class TokenRevoked(Event, name="ledger.token-revoked"):
    """A token stopped working before its time."""

    token_id: TokenId
    at: datetime


PartyEvent = (
    TenantRegistered
    | SubscriberRegistered
    | MemberAdmitted
    | MemberRemoved
    | SecondFactorRemoved
    | MemberInvited
    | InvitationAccepted
    | InvitationRevoked
)
TokenEvent = TokenIssued | TokenSucceeded | TokenRevoked


# --- money: streams account-<account_id> ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posting:
    """One line of a journal entry: `nanos` added to an account (negative: taken from it)."""

    account_id: AccountId
    nanos: int


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """The GPU-milliseconds of a usage window that one owner's GPUs gave.

    weight: the part of the earnings it gets, in proportion to the others'; None: by GPU-time.
    """

    owner_id: TenantId
    gpu_millis: int
    weight: int | None = None


class AccountOpened(Event, name="ledger.account-opened"):
    """A place where money is counted.

    overdraft_nanos: how far available may fall below zero; None: without limit.
    """

    account_id: AccountId
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    kind: AccountKind
    title: str
    currency: str
    overdraft_nanos: int | None
    at: datetime


class BudgetSet(Event, name="ledger.budget-set"):
    """How far available may fall below zero from now on; None: without limit.

    The budget of a cost centre, the credit of a wallet.
    """

    account_id: AccountId
    overdraft_nanos: int | None
    at: datetime


class FundsAdded(Event, name="ledger.funds-added"):
    """Money came in. The postings sum to zero: the account up, `cash` down."""

    account_id: AccountId
    entry_id: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


class HoldPlaced(Event, name="ledger.hold-placed"):
    """Money was set aside for a bid or lease; it is still the account's, but not available."""

    account_id: AccountId
    hold_id: HoldId
    money: Money
    purpose: str
    at: datetime


class HoldResized(Event, name="ledger.hold-resized"):
    """A hold now sets aside `money` in all, what was captured from it included."""

    account_id: AccountId
    hold_id: HoldId
    money: Money
    at: datetime


class UsageCaptured(Event, name="ledger.usage-captured", version=5, grown_from=1):
    """A metered usage window was charged to a hold. The postings sum to zero.

    window: the span of use that is rated. gpu_millis: granted GPU-time in it, `owners`' in all.
    charged: what the consumer pays for this window; the owners' and the platform's shares are
    among the postings. fee: the platform's part of `charged`; `fee_ppm` of all that was charged
    to the hold so far, less what was taken before. correction: its number among the corrections of
    the lease, where the window was charged before and more use of it was proved; 0: it is none.
    energy_mj: what the cards took for it, in millijoules, as information: it costs nothing; None:
    not known.
    """

    account_id: AccountId
    hold_id: HoldId
    entry_id: EntryId
    lease_id: LeaseId
    window: Window
    gpu_millis: int
    price: Rate
    fee_ppm: int
    owners: tuple[OwnerUse, ...]
    item: UsageItem
    charged: Money
    fee: Money
    cost_centre: str
    postings: tuple[Posting, ...]
    at: datetime
    correction: int = 0
    energy_mj: int | None = None


class CompensationPaid(Event, name="ledger.compensation-paid"):
    """An owner who took capacity back paid the consumer the agreed fee.

    The postings sum to zero: `account_id` (the consumer's) up, the owner's earnings down.
    """

    account_id: AccountId
    entry_id: EntryId
    lease_id: LeaseId
    owner_id: TenantId
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


class CostRecorded(Event, name="ledger.cost-recorded"):
    """Rented capacity cost the platform money. The postings sum to zero.

    `burst` down, `cash` up: the outside world got back some of what it paid in.
    """

    account_id: AccountId
    entry_id: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


class StorageCharged(Event, name="ledger.storage-charged"):
    """What was kept in a volume for a while was charged. The postings sum to zero.

    window: in whole seconds. byte_seconds: its bytes times the seconds that each was there.
    nanos_per_gib_month: the price of a GiB for a month of 730 hours. carried: byte-seconds times
    price of what was kept before and came to no nano-unit. charged: the price of all that was kept
    of the volume so far, less what was charged before; the platform gets it.
    """

    account_id: AccountId
    entry_id: EntryId
    volume_id: UUID
    title: str
    window: Window
    byte_seconds: int
    nanos_per_gib_month: int
    carried: int
    charged: Money
    cost_centre: str
    postings: tuple[Posting, ...]
    at: datetime


class InvoiceRounded(Event, name="ledger.invoice-rounded"):
    """An account was moved to what its invoice says in whole cents. The postings sum to zero.

    period: the invoice's month, in which this counts. money: what is charged more, or less
    where it is below zero.
    """

    account_id: AccountId
    entry_id: EntryId
    invoice_id: UUID
    number: str
    period: str
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


class TaxCharged(Event, name="ledger.tax-charged"):
    """The tax of an invoice was charged to the account that pays it. The postings sum to zero."""

    account_id: AccountId
    entry_id: EntryId
    invoice_id: UUID
    number: str
    period: str
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


class InvoiceCredited(Event, name="ledger.invoice-credited"):
    """A credit note gave an account back what an invoice had charged. The postings sum to zero.

    number: of the credit note. corrects: the number of the invoice. money: with `tax`.
    """

    account_id: AccountId
    entry_id: EntryId
    invoice_id: UUID
    credit_id: UUID
    number: str
    corrects: str
    money: Money
    tax: Money
    postings: tuple[Posting, ...]
    at: datetime


class SlaCredited(Event, name="ledger.sla-credited"):
    """An owner whose service missed what its offer promised credits the consumer a share.

    The postings sum to zero: `account_id` (the consumer's) up, the owner's earnings down. hold_id:
    whose charges it corrects. charged: the owner's part of them, less what disputes gave back.
    credit_ppm: the share that is credited, as far as so much is left. reason: in words, with the
    figures that the formula took.
    """

    account_id: AccountId
    entry_id: EntryId
    hold_id: HoldId
    lease_id: LeaseId
    owner_id: TenantId
    charged: Money
    credit_ppm: int
    reason: str
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


class HoldReleased(Event, name="ledger.hold-released"):
    """What was left of a hold is available again."""

    account_id: AccountId
    hold_id: HoldId
    money: Money
    at: datetime


AccountEvent = (
    AccountOpened
    | BudgetSet
    | FundsAdded
    | HoldPlaced
    | HoldResized
    | HoldRepriced
    | UsageCaptured
    | CompensationPaid
    | CostRecorded
    | StorageCharged
    | SlaCredited
    | InvoiceRounded
    | TaxCharged
    | InvoiceCredited
    | HoldReleased
)
