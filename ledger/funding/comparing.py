"""A month of the journal beside a month of our account at the payment service: one leg.

It reads the lines that `reconciling` kept, and asks nobody. What the service moves to our own bank
is no entry: cash is one account, wherever it lies.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta

from ledger.domain.minor_units import money_of
from ledger.domain.periods import Period
from ledger.domain.reconciling import Difference, Leg, Pair, Reason
from ledger.models import (
    JournalEntryRow,
    PaymentMovement,
    PaymentReconciliation,
    WalletRefundPartRow,
)

IN_FLIGHT = timedelta(days=2)
"""How old an entry may be whose line at the service has not come yet."""
CAME = frozenset({"charge", "payment"})
WENT = frozenset({"refund", "payment_refund"})
CAME_BACK = frozenset({"refund_failure", "payment_failure_refund"})
WITHIN = frozenset({"payout", "payout_failure", "payout_cancel"})
"""Between the account there and our own bank: both are our cash."""
OF_OWNERS = frozenset({"transfer", "transfer_refund", "transfer_cancel", "transfer_failure"})
"""To owners and back: a leg of its own (`ledger.connect.comparing`)."""
OF_FEES = frozenset({"stripe_fee", "tax_fee", "network_cost"})
"""What the service takes without a payment of ours; it is not of the journal."""
OURS = ("pi_", "re_", "pyr_", "du_", "dp_")
"""How references of entries begin that the service has a line for."""
OF_REFUND = "refund:"
KINDS = ("funds", "refund", "dispute", "reversal", "processing")
NAME, TITLE = "journal-stripe", "The journal and Stripe"

Key = tuple[str, str]
"""A subject and its unit."""


def journal_and_stripe(period: Period, now: datetime) -> Leg:
    """Compare what card payments did in the journal of a month with the service's own lines."""
    here, entries = _of_journal(period)
    there, lines = _of_service(period)
    differences: list[Difference] = []
    for key in sorted({*here, *there}):
        amount = there[key] - here[key]
        if not amount:
            continue
        if key not in there:
            differences += _only_here(key, amount, entries[key], period, now)
        elif key not in here:
            differences += _only_there(key, amount, lines[key], period)
        elif lines[key][0].kind in OF_FEES:
            differences.append(Difference(*key, amount, "fee", "kept by the service itself"))
    pairs = [Pair(*key, here[key], there[key]) for key in sorted({*here, *there})]
    return Leg(NAME, TITLE, pairs, differences)


def _of_journal(period: Period) -> tuple[Counter[Key], dict[Key, list[JournalEntryRow]]]:
    sums: Counter[Key] = Counter()
    entries: dict[Key, list[JournalEntryRow]] = defaultdict(list)
    rows = JournalEntryRow.objects.filter(period=str(period), kind__in=KINDS)
    for row in rows.order_by("position").iterator():
        key = _key_of_entry(row)
        if key is not None:
            sums[key] += _into_cash(row)
            entries[key].append(row)
    return sums, entries


def _key_of_entry(row: JournalEntryRow) -> Key | None:
    unit = f"{row.currency} nanos"
    if row.kind == "processing":
        return f"fee of {row.reference}", unit
    if row.reference.startswith(OURS) or row.reference.startswith(OF_REFUND):
        return row.reference, unit
    return None


def _into_cash(row: JournalEntryRow) -> int:
    """Return what an entry says came to us; below zero: it went out."""
    own = dict(zip(row.account_ids, row.nanos, strict=True)).get(row.account_id, 0)
    return int(own)


def _of_service(period: Period) -> tuple[Counter[Key], dict[Key, list[PaymentMovement]]]:
    sums: Counter[Key] = Counter()
    lines: dict[Key, list[PaymentMovement]] = defaultdict(list)
    within = period.window
    rows = PaymentMovement.objects.filter(at__gte=within.starts_at, at__lt=within.ends_at)
    for row in rows.exclude(kind__in=WITHIN | OF_OWNERS).order_by("at", "movement"):
        key = _subject_of(row), f"{row.currency} nanos"
        sums[key] += _nanos(row.minor, row.currency)
        lines[key].append(row)
        if row.fee_minor:
            fee = f"fee of {row.movement}", f"{row.currency} nanos"
            sums[fee] -= _nanos(row.fee_minor, row.currency)
            lines[fee].append(row)
    return sums, lines


def _nanos(minor: int, currency: str) -> int:
    nanos = money_of(abs(minor), currency).nanos
    return nanos if minor >= 0 else -nanos


def _subject_of(row: PaymentMovement) -> str:
    """Return by which reference the journal knows what a line is of."""
    if row.kind in CAME:
        return row.intent or row.source or row.movement
    if row.kind in CAME_BACK:
        part = WalletRefundPartRow.objects.filter(reference=row.source).first()
        return row.source if part is None else f"{OF_REFUND}{part.refund_id}"
    return row.source or row.movement


def _only_here(
    key: Key, amount: int, entries: list[JournalEntryRow], period: Period, now: datetime
) -> list[Difference]:
    """Say why the service has no line in this month for entries that count in it."""
    found = _lines_elsewhere(key[0], period)
    if found is not None:
        words = f"the service has it on {found.at:%Y-%m-%d}, in another month"
        return [Difference(*key, amount, "late", words)]
    compared = PaymentReconciliation.objects.order_by("-until").first()
    youngest = max(row.at for row in entries)
    fresh = now - youngest < IN_FLIGHT
    if fresh or (compared is not None and youngest >= compared.until):
        return [Difference(*key, amount, "in-flight", "the service has no line for it yet")]
    return []


def _only_there(
    key: Key, amount: int, lines: list[PaymentMovement], period: Period
) -> list[Difference]:
    """Say why the journal has no entry in this month for lines of it."""
    row = lines[0]
    if row.kind in OF_FEES:
        return [Difference(*key, amount, "fee", "kept by the service itself")]
    of_fee = key[0].startswith("fee of ")
    entry = JournalEntryRow.objects.filter(
        reference=row.movement if of_fee else key[0], kind__in=KINDS
    )
    other = entry.exclude(period=str(period)).first()
    if other is None:
        return []
    reason: Reason = "late"
    return [Difference(*key, amount, reason, f"it counts in {other.period}")]


def _lines_elsewhere(subject: str, period: Period) -> PaymentMovement | None:
    """Return a line of another month of what an entry is of."""
    rows = PaymentMovement.objects.exclude(
        at__gte=period.window.starts_at, at__lt=period.window.ends_at
    )
    if subject.startswith("fee of "):
        return rows.filter(movement=subject.removeprefix("fee of ")).first()
    if subject.startswith(OF_REFUND):
        parts = WalletRefundPartRow.objects.filter(refund_id=subject.removeprefix(OF_REFUND))
        return rows.filter(
            kind__in=CAME_BACK, source__in=parts.values_list("reference", flat=True)
        ).first()
    return rows.filter(intent=subject).first() or rows.filter(source=subject).first()
