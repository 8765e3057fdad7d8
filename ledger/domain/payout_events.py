"""What happens to money on its way to owners: streams payee-<account>, bank-files-<platform>.

No event holds a bank account's number: those are sealed, apart from the record, by `details_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal
from uuid import UUID

from ledger.domain.connect_events import Channel, ConnectEvent, TransferReversed
from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.money import Money

DetailsKind = Literal["iban", "account"]
"""By what a bank account is named: an IBAN, or account and routing number."""
Schedule = Literal["weekly", "monthly", "manual"]
"""How often an owner is paid; manual: whenever finance says so."""
FileFormat = Literal["pain.001", "csv"]


class BankDetailsProposed(Event, name="ledger.bank-details-proposed"):
    """Somebody gave another bank account to pay an owner to. Until it is settled nothing is sent.

    usable_from: from then on it may be confirmed; until then anybody of the owner may object.
    masked: the country and last four characters, for people to know it by.
    """

    account_id: AccountId
    tenant_id: TenantId
    currency: str
    details_id: UUID
    kind: DetailsKind
    masked: str
    usable_from: datetime
    by_user: UserId
    at: datetime


class BankDetailsConfirmed(Event, name="ledger.bank-details-confirmed"):
    """From now on the owner is paid to this bank account."""

    account_id: AccountId
    details_id: UUID
    by_user: UserId
    at: datetime


class BankDetailsWithdrawn(Event, name="ledger.bank-details-withdrawn"):
    """Somebody objected to a bank account before it was used: the one before stays."""

    account_id: AccountId
    details_id: UUID
    by_user: UserId
    at: datetime


class PayoutScheduleSet(Event, name="ledger.payout-schedule-set"):
    """How often an owner is paid, and from how much on.

    minimum_nanos: None: as the platform says.
    """

    account_id: AccountId
    tenant_id: TenantId
    currency: str
    schedule: Schedule
    minimum_nanos: int | None
    by_user: UserId
    at: datetime


class PayoutRequested(Event, name="ledger.payout-requested"):
    """What an owner earned up to a cut-off is to be paid. The postings sum to zero.

    The earnings go down, and what is on its way to owners up. period: the week, month or day that
    is settled. cut_off: what was earned from that day on is not part of it. owed_nanos: what the
    owner was owed in all. later_nanos, held_back_nanos, set_aside_nanos: of that, what was earned
    after the cut-off, what is held back for corrections, and what disputes have set aside.
    requested_by: None: the schedule. approvals_needed: by how many people.
    """

    account_id: AccountId
    tenant_id: TenantId
    entry_id: EntryId
    payout_id: UUID
    period: str
    revision: int
    cut_off: date
    money: Money
    owed_nanos: int
    later_nanos: int
    held_back_nanos: int
    set_aside_nanos: int
    approvals_needed: int
    requested_by: UserId | None
    postings: tuple[Posting, ...]
    at: datetime


class PayoutApproved(Event, name="ledger.payout-approved"):
    """One person more agreed that a payout goes out."""

    account_id: AccountId
    payout_id: UUID
    by_user: UserId
    at: datetime


class PayoutCancelled(Event, name="ledger.payout-cancelled"):
    """A payout will not go out; its money is the owner's earnings again. corrects: which entry."""

    account_id: AccountId
    entry_id: EntryId
    payout_id: UUID
    corrects: EntryId
    money: Money
    reason: str
    postings: tuple[Posting, ...]
    by_user: UserId
    at: datetime


class PayoutSent(Event, name="ledger.payout-sent"):
    """A payout was handed to the bank: batch_id is the bank file that it is in, the only one.

    Over Stripe there is no file: batch_id follows from the payout, details_id from the account that
    the owner has there.
    """

    account_id: AccountId
    payout_id: UUID
    channel: Channel
    batch_id: UUID
    details_id: UUID
    by_user: UserId
    at: datetime


class PayoutPaid(Event, name="ledger.payout-paid"):
    """The bank paid. The postings sum to zero: what is on its way down, cash up.

    reference: what the bank calls the transfer. paid_on: the day on its statement.
    """

    account_id: AccountId
    entry_id: EntryId
    payout_id: UUID
    money: Money
    reference: str
    paid_on: date
    postings: tuple[Posting, ...]
    by_user: UserId
    at: datetime


class PayoutReturned(Event, name="ledger.payout-returned"):
    """The bank did not pay, or the money came back; it is the owner's earnings again.

    corrects: the entry that is undone: that of the request where it was not paid, else that of the
    payment. was_paid: it had been paid before.
    """

    account_id: AccountId
    entry_id: EntryId
    payout_id: UUID
    corrects: EntryId
    money: Money
    reason: str
    was_paid: bool
    postings: tuple[Posting, ...]
    by_user: UserId
    at: datetime


PayeeEvent = (
    BankDetailsProposed
    | BankDetailsConfirmed
    | BankDetailsWithdrawn
    | PayoutScheduleSet
    | PayoutRequested
    | PayoutApproved
    | PayoutCancelled
    | PayoutSent
    | PayoutPaid
    | PayoutReturned
    | ConnectEvent
)
PayoutEntry = PayoutRequested | PayoutCancelled | PayoutPaid | PayoutReturned | TransferReversed
"""Those of them that are journal entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFileLine:
    """One transfer of a bank file. end_to_end_id: travels with it to the payee's statement."""

    payout_id: UUID
    account_id: AccountId
    details_id: UUID
    end_to_end_id: str
    nanos: int


class BankFileWritten(Event, name="ledger.bank-file-written"):
    """Payouts were put into a file for the bank. Written again it has the same bytes.

    number: counts the files of the platform. sha256: of the file, whose account numbers are sealed
    apart from the record. debtor_*: whose account the bank takes the money from.
    """

    file_id: UUID
    number: int
    message_id: str
    format: FileFormat
    currency: str
    debtor_name: str
    debtor_iban: str
    debtor_bic: str
    execute_on: date
    lines: tuple[BankFileLine, ...]
    total_nanos: int
    sha256: str
    by_user: UserId
    at: datetime
