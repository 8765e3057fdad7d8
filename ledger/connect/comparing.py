"""Transfers to owners beside Stripe's lines of our account there: what was kept of both.

The leg reads the lines that the reconciliation of payments kept, and asks nobody.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import QuerySet

from ledger.connect.settling import settle_all_of
from ledger.domain.closing import Check
from ledger.domain.minor_units import unit_of
from ledger.domain.periods import Period
from ledger.domain.reconciling import (
    Difference,
    Leg,
    Pair,
    Reason,
    unexplained,
    with_the_rest,
)
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from ledger.models import JournalEntryRow, PaymentMovement, PaymentReconciliation, PayoutRow
from ledger.payments.port import Movement, Payments, PaymentsRefused

OUT, BACK = "transfer", frozenset({"transfer_refund", "transfer_cancel", "transfer_failure"})
KINDS = (OUT, *sorted(BACK))
"""Kinds of Stripe's lines that are of transfers to owners."""
OURS = ("tr_", "trr_")
"""How references of such entries begin."""
IN_FLIGHT = timedelta(days=2)
"""How old an entry may be whose line at Stripe has not come yet."""
BY = Meta(actor="loop:payment-reconciliation")
NAMED_MAX, LOOKED_THROUGH_MAX = 3, 50
NAME, TITLE = "transfers-stripe", "Payouts over Stripe and its transfers"


def transfers_and_stripe(period: Period, now: datetime) -> Leg:
    """Compare what went to owners over Stripe in a month, and came back, with Stripe's own lines.

    Both are nano-units that left us; below zero: they came back. A subject is a transfer or a
    reversal, by its id there.
    """
    here: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    at: dict[str, datetime] = {}
    for entry in _entries().filter(period=str(period)).order_by("position"):
        if entry.reference.startswith(OURS):
            sign = 1 if entry.kind == "payout-paid" else -1
            here[entry.reference, f"{entry.currency} nanos"] += sign * max(entry.nanos)
            at[entry.reference] = entry.at
    within = period.window
    lines = PaymentMovement.objects.filter(kind__in=KINDS)
    for line in lines.filter(at__gte=within.starts_at, at__lt=within.ends_at).order_by("at", "pk"):
        key = line.source or line.movement, f"{line.currency} nanos"
        there[key] -= line.minor * unit_of(line.currency)
    differences = []
    for key in sorted({*here, *there}):
        known = None
        if key not in there:
            known = _why_not_there(key[0], at[key[0]], now)
        elif key not in here:
            known = _why_not_here(key[0], period)
        if known is not None:
            differences.append(Difference(*key, there[key] - here[key], *known))
    pairs = [Pair(*key, here[key], there[key]) for key in sorted({*here, *there})]
    return Leg(NAME, TITLE, pairs, differences)


def _why_not_there(reference: str, at: datetime, now: datetime) -> tuple[Reason, str] | None:
    """Return why Stripe has no line in the month for an entry of it; None: nobody knows."""
    other = PaymentMovement.objects.filter(kind__in=KINDS, source=reference).first()
    if other is not None:
        return "late", f"Stripe has it on {other.at:%Y-%m-%d}, in another month"
    last = PaymentReconciliation.objects.order_by("-until").first()
    if now - at < IN_FLIGHT or (last is not None and at >= last.until):
        return "in-flight", "Stripe has no line for it yet"
    return None


def _why_not_here(reference: str, period: Period) -> tuple[Reason, str] | None:
    """Return why there is no entry in the month for a line of it; None: nobody knows."""
    other = _entries().filter(reference=reference).first()
    if other is None or other.period == str(period):
        return None
    return "late", f"it counts in {other.period}"


def transfers_are_there(period: Period, now: datetime) -> Check:
    """Look whether payouts over Stripe of a month are the same in both books, before it closes."""
    left = unexplained([with_the_rest(transfers_and_stripe(period, now))])
    named = "; ".join(f"{each.subject}: {each.amount:+,} {each.unit}" for each in left[:NAMED_MAX])
    if not _entries().filter(period=str(period), reference__startswith="tr_").exists():
        named = named or "Nobody was paid over Stripe in this month."
    return Check(
        name="transfers",
        title="Payouts over Stripe",
        passed=not left,
        words=named or "Every transfer is in both books.",
        left=len(left),
    )


def compare_transfer(
    store: EventStore, payments: Payments, movement: Movement, now: datetime
) -> tuple[str, str] | None:
    """Look if a line is on the books, and put it there if not; return what differs.

    Returns: kind of difference and words, as `ledger.funding.reconciling` knows them; None: none.
    """
    posted = _posted(movement.source)
    if posted is None:
        try:
            settled = _settle(store, payments, movement, now)
        except (Refusal, PaymentsRefused):
            settled = False
        if settled:
            return "late", "put on the books now"
        return "missing-here", "no payout of ours is behind it"
    if posted != abs(movement.minor) * unit_of(movement.currency):
        return "amount", "the journal has another amount"
    return None


def _posted(reference: str) -> int | None:
    """Return the amount of the entry of a transfer or reversal; None: there is none."""
    row = _entries().filter(reference=reference).first()
    return None if row is None else max(row.nanos)


def _settle(store: EventStore, payments: Payments, movement: Movement, now: datetime) -> bool:
    """Put what a line is of on the books; tell if it is one of ours.

    A reversal is found by its transfer alone, so the last transfers are looked through.
    """
    if movement.kind == OUT:
        return settle_all_of(store, payments, movement.source, by=BY, now=now)
    paid = PayoutRow.objects.filter(channel="stripe", state="paid", currency=movement.currency)
    for row in paid.order_by("-changed_at", "pk")[:LOOKED_THROUGH_MAX]:
        if movement.source in {each.reversal for each in payments.reversals_of(row.reference)}:
            return settle_all_of(store, payments, row.reference, by=BY, now=now)
    return False


def _entries() -> QuerySet[JournalEntryRow]:
    return JournalEntryRow.objects.filter(kind__in=("payout-paid", "payout-back"))
