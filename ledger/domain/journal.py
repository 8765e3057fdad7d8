"""How money moves: rating of use, the split between those who earn, entries that balance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal
from unicodedata import normalize
from uuid import uuid5

from ledger.domain.connect_events import TransferReversed
from ledger.domain.dispute_events import UseCredited
from ledger.domain.events import (
    CompensationPaid,
    CostRecorded,
    FundsAdded,
    InvoiceCredited,
    InvoiceRounded,
    OwnerUse,
    Posting,
    SlaCredited,
    StorageCharged,
    TaxCharged,
    UsageCaptured,
)
from ledger.domain.ids import AccountId, EntryId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.payout_events import (
    PayoutCancelled,
    PayoutEntry,
    PayoutPaid,
    PayoutRequested,
    PayoutReturned,
)
from ledger.domain.receivable_events import InvoiceWrittenOff
from ledger.domain.return_events import (
    EntryReversed,
    FundsDisputed,
    FundsReturned,
    ProcessingFeePaid,
    ReturnEntry,
)
from ledger.domain.self_billing_events import OwnerTaxAdded
from ledger.domain.span import Window

EntryKind = Literal[
    "funds",
    "usage",
    "compensation",
    "cost",
    "storage",
    "sla-credit",
    "payout",
    "payout-paid",
    "payout-back",
    "owner-tax",
    "rounding",
    "tax",
    "credit",
    "write-off",
    "refund",
    "dispute",
    "reversal",
    "processing",
    "use-credit",
]
InvoiceEntry = InvoiceRounded | TaxCharged | InvoiceCredited | InvoiceWrittenOff
EntryEvent = (
    FundsAdded
    | UsageCaptured
    | CompensationPaid
    | CostRecorded
    | StorageCharged
    | SlaCredited
    | PayoutEntry
    | InvoiceEntry
    | ReturnEntry
    | OwnerTaxAdded
)
"""The events that are journal entries: each carries postings that sum to zero."""
ENTRY_KINDS = (
    *(FundsAdded, UsageCaptured, CompensationPaid, CostRecorded, StorageCharged, SlaCredited),
    *(PayoutRequested, PayoutCancelled, PayoutPaid, PayoutReturned, TransferReversed),
    *(InvoiceRounded, TaxCharged, InvoiceCredited, InvoiceWrittenOff),
    *(FundsReturned, FundsDisputed, EntryReversed, ProcessingFeePaid, UseCredited),
    OwnerTaxAdded,
)


def return_kind(event: ReturnEntry) -> EntryKind:
    """Return the word for an entry about money that goes back."""
    match event:
        case FundsReturned():
            return "refund"
        case FundsDisputed():
            return "dispute"
        case EntryReversed():
            return "reversal"
        case ProcessingFeePaid():
            return "processing"
        case UseCredited():
            return "use-credit"


def invoice_kind(event: InvoiceEntry | OwnerTaxAdded) -> EntryKind:
    """Return the word for an entry that names its document."""
    match event:
        case InvoiceRounded():
            return "rounding"
        case TaxCharged():
            return "tax"
        case InvoiceCredited():
            return "credit"
        case InvoiceWrittenOff():
            return "write-off"
        case OwnerTaxAdded():
            return "owner-tax"


def entry_kind(event: EntryEvent) -> EntryKind:
    """Return the word for a journal entry that statements and exports show."""
    match event:
        case FundsAdded():
            return "funds"
        case UsageCaptured():
            return "usage"
        case CompensationPaid():
            return "compensation"
        case CostRecorded():
            return "cost"
        case StorageCharged():
            return "storage"
        case SlaCredited():
            return "sla-credit"
        case PayoutRequested():
            return "payout"
        case PayoutPaid():
            return "payout-paid"
        case PayoutCancelled() | PayoutReturned() | TransferReversed():
            return "payout-back"
        case (
            InvoiceRounded()
            | TaxCharged()
            | InvoiceCredited()
            | InvoiceWrittenOff()
            | OwnerTaxAdded()
        ):
            return invoice_kind(event)
        case (
            FundsReturned()
            | FundsDisputed()
            | EntryReversed()
            | ProcessingFeePaid()
            | UseCredited()
        ):
            return return_kind(event)


def usage_entry(lease_id: LeaseId, window: Window, correction: int = 0) -> EntryId:
    """Return the id of the entry that charges one usage window of a lease: always the same.

    correction: its number among the lease's corrections, each of which has an entry of its own.
    """
    span = f"{window.starts_at.isoformat()}/{window.ends_at.isoformat()}"
    return EntryId(uuid5(lease_id, f"usage:{span}" + (f":{correction}" if correction else "")))


def reference_name(reference: str) -> str:
    """Return a reference without what people write differently: case, blanks, forms of letters."""
    return " ".join(normalize("NFKC", reference).casefold().split())


def payment_entry(account_id: AccountId, reference: str) -> EntryId:
    """Return the entry of a payment to an account."""
    return EntryId(uuid5(account_id, f"payment:{reference_name(reference)}"))


def compensation_entry(lease_id: LeaseId, owner_id: TenantId) -> EntryId:
    """Return the id of the entry by which one owner pays for reclaiming a lease."""
    return EntryId(uuid5(lease_id, f"compensation:{owner_id}"))


def sla_entry(lease_id: LeaseId, owner_id: TenantId) -> EntryId:
    """Return the id of the entry by which one owner credits a lease that missed its promise."""
    return EntryId(uuid5(lease_id, f"sla-credit:{owner_id}"))


def cost_entry(burst_account_id: AccountId, reference: str) -> EntryId:
    """Return the id of the entry for one cost, named by the cloud's reference for it."""
    return EntryId(uuid5(burst_account_id, f"cost:{reference}"))


def balanced(postings: Iterable[Posting]) -> tuple[Posting, ...]:
    """Return the postings that move anything, one per account, in the order first named.

    What does not sum to zero is a mistake of ours, never of the world: it stops here.
    """
    moved: dict[AccountId, int] = {}
    for posting in postings:
        moved[posting.account_id] = moved.get(posting.account_id, 0) + posting.nanos
    assert sum(moved.values()) == 0, f"postings are off by {sum(moved.values())} nano-units"
    return tuple(Posting(account_id, nanos) for account_id, nanos in moved.items() if nanos)


def rate(price: Rate, *, millis_before: int, gpu_millis: int) -> Money:
    """Price the next `gpu_millis` of a use of which `millis_before` are rated already.

    The charge is what is owed for the total less what was owed before, so the charges of any
    batching, in any order, add up to `price.charge(total)`; a single one may differ by less
    than a nano-unit from its own product.
    """
    return price.charge(millis_before + gpu_millis) - price.charge(millis_before)


def next_fee(charged_before: Money, charged: Money, *, fee_ppm: int) -> Money:
    """Return the platform's part of `charged`; over many charges it is `fee_ppm` of their sum.

    Never negative and never more than `charged`. The owners get the rest.
    """
    return (charged_before + charged).share(fee_ppm) - charged_before.share(fee_ppm)


def split(nanos: int, weights: Sequence[int]) -> list[int]:
    """Divide `nanos` in proportion to `weights`, whole and exact: the parts sum to `nanos`.

    Largest remainder: each part is rounded down, then the nano-units left go one each to those
    that lost most, ties to the earlier. Equal input, equal output.
    """
    assert nanos >= 0
    assert all(weight >= 0 for weight in weights)
    total = sum(weights)
    assert total > 0
    parts = [nanos * weight // total for weight in weights]
    lost = [nanos * weight % total for weight in weights]
    neediest = sorted(range(len(weights)), key=lambda index: (-lost[index], index))
    for index in neediest[: nanos - sum(parts)]:
        parts[index] += 1
    return parts


def usage_postings(
    *,
    payer: AccountId,
    fees: AccountId,
    charged: Money,
    fee: Money,
    earnings: Sequence[tuple[AccountId, OwnerUse]],
) -> tuple[Posting, ...]:
    """Return the entry for a charge: payer down, platform up by the fee, owners by the rest."""
    weights = [use.gpu_millis if use.weight is None else use.weight for _, use in earnings]
    parts = split((charged - fee).nanos, weights)
    return balanced(
        [
            Posting(payer, -charged.nanos),
            Posting(fees, fee.nanos),
            *(
                Posting(account_id, nanos)
                for (account_id, _), nanos in zip(earnings, parts, strict=True)
            ),
        ]
    )


def transfer(*, source: AccountId, target: AccountId, money: Money) -> tuple[Posting, ...]:
    """Return the entry that moves an amount from one account to another."""
    return balanced([Posting(target, money.nanos), Posting(source, -money.nanos)])
