"""Tables of the book of record. `es_event` has no model: nobody but the store touches it."""

from __future__ import annotations

from ledger.models.checkpoints import Checkpoint, ParkedReaction
from ledger.models.connect import BankPayoutRow, TransferReversalRow
from ledger.models.deliveries import AttemptRow, DeliveryRow, WebhookRow
from ledger.models.depletion import AccountWatchRow
from ledger.models.digests import DigestItemRow, DigestTimeRow
from ledger.models.disputes import DisputeRow, DisputeSaidRow
from ledger.models.exports import (
    ExportDeliveryRow,
    ExportPlanRow,
    ExportProgress,
    ExportRunRow,
    GlMappingRow,
)
from ledger.models.invoices import (
    BillingDetailsRow,
    CreditNoteRow,
    DocumentFile,
    InvoiceRow,
    PaperRow,
    SelfBillingRow,
)
from ledger.models.money import (
    AccountRow,
    ClosedThroughRow,
    DebtRow,
    HoldRow,
    JournalEntryRow,
    PartyNameRow,
    PeriodRow,
    PostingRow,
    PostingSumRow,
    StorageChargeRow,
    UsageChargeRow,
)
from ledger.models.notices import InboxRow, NoticeRead, NoticeWish
from ledger.models.parties import (
    InvitationRow,
    MemberRow,
    SubscriberRow,
    TenantRow,
    TokenRow,
    TokenUse,
)
from ledger.models.payouts import (
    BankDetailsValue,
    BankFileRow,
    EarningRow,
    PayeeRow,
    PayoutRow,
)
from ledger.models.people import Person
from ledger.models.receivables import ReceivableRow
from ledger.models.requests import RequestKey, TokenBucket
from ledger.models.wallet import (
    PaymentCall,
    PaymentMovement,
    PaymentNotice,
    PaymentReconciliation,
    WalletDisputeRow,
    WalletMethodRow,
    WalletPaymentRow,
    WalletRefundPartRow,
    WalletRefundRow,
    WalletRow,
)

__all__ = [
    "AccountRow",
    "AccountWatchRow",
    "AttemptRow",
    "BankDetailsValue",
    "BankFileRow",
    "BankPayoutRow",
    "BillingDetailsRow",
    "Checkpoint",
    "ClosedThroughRow",
    "CreditNoteRow",
    "DebtRow",
    "DeliveryRow",
    "DigestItemRow",
    "DigestTimeRow",
    "DisputeRow",
    "DisputeSaidRow",
    "DocumentFile",
    "EarningRow",
    "ExportDeliveryRow",
    "ExportPlanRow",
    "ExportProgress",
    "ExportRunRow",
    "GlMappingRow",
    "HoldRow",
    "InboxRow",
    "InvitationRow",
    "InvoiceRow",
    "JournalEntryRow",
    "MemberRow",
    "NoticeRead",
    "NoticeWish",
    "PaperRow",
    "ParkedReaction",
    "PartyNameRow",
    "PayeeRow",
    "PaymentCall",
    "PaymentMovement",
    "PaymentNotice",
    "PaymentReconciliation",
    "PayoutRow",
    "PeriodRow",
    "Person",
    "PostingRow",
    "PostingSumRow",
    "ReceivableRow",
    "RequestKey",
    "SelfBillingRow",
    "StorageChargeRow",
    "SubscriberRow",
    "TenantRow",
    "TokenBucket",
    "TokenRow",
    "TokenUse",
    "TransferReversalRow",
    "UsageChargeRow",
    "WalletDisputeRow",
    "WalletMethodRow",
    "WalletPaymentRow",
    "WalletRefundPartRow",
    "WalletRefundRow",
    "WalletRow",
    "WebhookRow",
]
