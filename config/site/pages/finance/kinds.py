"""What kinds of journal entries and accounts are called on pages."""

from __future__ import annotations

KINDS = {
    "usage": "Use of GPUs",
    "funds": "Added",
    "compensation": "Paid for reclaims",
    "sla-credit": "Credited for missed promises",
    "use-credit": "Given back after disputes",
    "storage": "Storage of volumes",
    "cost": "Rented capacity",
    "rounding": "Rounding of invoices",
    "tax": "Tax",
    "credit": "Credit notes",
    "write-off": "Written off",
    "correction": "Corrections",
    "refund": "Paid back",
    "dispute": "Taken back by a bank",
    "reversal": "Moved back",
    "processing": "Fees for payments",
    "payout": "Payouts",
    "payout-paid": "Payouts that were paid",
    "payout-back": "Payouts that came back",
    "owner-tax": "VAT on self-billed invoices",
}
ACCOUNT_KINDS = {
    "prepaid": "a unit's money, added before it is used",
    "chargeback": "what a unit used, billed inside its organisation",
    "earnings": "what GPUs earned, not paid out yet",
    "fees": "the platform's share",
    "cash": "what was paid in from outside; it is below zero by what others have of it",
    "burst": "what clouds cost",
    "stripe-fees": "what taking card payments cost",
    "bad-debts": "what was owed on invoices and given up",
    "payouts": "what is on its way to owners",
    "rounding": "what invoices in whole cents differ by from the ledger",
    "tax": "what is owed to the state on invoices",
}
