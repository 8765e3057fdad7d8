"""The journal compared with our account at the payment service: every line, every entry.

What was missed (a notice that never came) is put on the books by it; what remains has a type and
is looked at by somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from ledger.commands.refunds import pay_processing_fee
from ledger.domain.closing import Check, Point
from ledger.domain.minor_units import money_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.domain.reconciling import unexplained, with_the_rest
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from ledger.funding import billing
from ledger.funding.comparing import CAME, IN_FLIGHT, OURS, journal_and_stripe
from ledger.funding.settling import settle_dispute, settle_intent, settle_refund
from ledger.models import JournalEntryRow, PaymentMovement, PaymentReconciliation
from ledger.payments import default_payments
from ledger.payments.port import Movement, Payments, PaymentsRefused

BY = Meta(actor="loop:payment-reconciliation")
AGAIN = timedelta(days=3)
"""So much of what was compared before is compared again: lines may come late."""
FIRST = timedelta(days=35)
NAMED_MAX = 3
OPEN = frozenset({"missing-here", "missing-there", "amount"})
"""Differences that somebody has to look at."""
POINTS_SHOWN = 10
"""Of what a month has to have in order: how many are named one by one."""
WENT = frozenset({"refund", "payment_refund"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that was not the same on both sides.

    kind: late (put on the books by this), in-flight, missing-here (the service has it and
    we do not), missing-there, amount.
    """

    kind: str
    about: str
    words: str


Comparing = Callable[[EventStore, Payments, Movement, datetime], tuple[str, str] | None]
"""Looks if a line is on the books, and puts it there if not; returns what differs, and words."""
_others: dict[str, Comparing] = {}


def install(others: Mapping[str, Comparing]) -> None:
    """Say who compares lines of other kinds, such as `transfer`."""
    _others.update(others)


def run_once(store: EventStore, *, now: datetime) -> int:
    """Compare what came since the last time, and some of before; return the lines compared."""
    payments = default_payments()
    if payments is None:
        return 0
    last = PaymentReconciliation.objects.order_by("-until").first()
    since = last.until - AGAIN if last is not None else now - FIRST
    billing.ask_about_open(store, payments, now=now)
    return reconcile(store, payments, since=since, until=now, now=now).compared


def reconcile(
    store: EventStore, payments: Payments, *, since: datetime, until: datetime, now: datetime
) -> PaymentReconciliation:
    """Compare the journal with the service's lines of a span, and keep what was found."""
    found: list[Difference] = []
    compared = 0
    for movement in payments.movements(since, until):
        compared += 1
        difference = _compare(store, payments, movement, now)
        _pay_fee(store, movement, now)
        _keep(payments, movement, difference)
        if difference is not None:
            found.append(difference)
    found += _missing_there(since, until, now)
    return PaymentReconciliation.objects.create(
        made_at=now,
        since=since,
        until=until,
        compared=compared,
        differences=[asdict(each) for each in found],
        open=sum(each.kind in OPEN for each in found),
    )


def stripe_is_reconciled(period: Period, now: datetime) -> Check:
    """Look whether the journal of a month is the same as our account at the payment service."""
    if default_payments() is None:
        return _check(True, "No card payments are set up here.")
    month = period.window
    last = PaymentReconciliation.objects.filter(until__gte=month.ends_at).order_by("-until").first()
    if last is None:
        return _check(False, "Not compared up to the end of the month yet.")
    left = unexplained([with_the_rest(journal_and_stripe(period, now))])
    wrong = [f"{each.subject}: {each.amount:+,} {each.unit}" for each in left]
    more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    words = "; ".join(wrong[:NAMED_MAX]) + more
    return _check(not wrong, words or "Every line is in the journal.", wrong)


def _check(passed: bool, words: str, wrong: Sequence[str] = ()) -> Check:
    return Check(
        name="stripe",
        title="Stripe reconciled",
        passed=passed,
        words=words,
        left=len(wrong) or int(not passed),
        points=tuple(Point(each) for each in wrong[:POINTS_SHOWN]),
    )


def _compare(
    store: EventStore, payments: Payments, movement: Movement, now: datetime
) -> Difference | None:
    """Return what differs about a line at the service, after trying to put it on the books."""
    compare = _others.get(movement.kind)
    if compare is not None:
        found, about = compare(store, payments, movement, now), movement.source
        return found and Difference(kind=found[0], about=about, words=f"{about}: {found[1]}")
    if movement.kind not in CAME | WENT and not _is_of_dispute(movement):
        return None
    posted = _posted(payments, movement)
    if posted is None:
        try:
            settled = _settle(store, payments, movement, now)
        except (Refusal, PaymentsRefused):
            settled = False
        kind, words = "late", "put on the books now"
        if not settled:
            kind, words = "missing-here", "no wallet of ours is behind it"
        return Difference(kind=kind, about=movement.source, words=f"{movement.source}: {words}")
    nanos = money_of(abs(movement.minor), movement.currency).nanos
    if posted != nanos:
        words = f"{movement.source}: the journal has another amount"
        return Difference(kind="amount", about=movement.source, words=words)
    return None


def _is_of_dispute(movement: Movement) -> bool:
    return movement.kind == "adjustment" and movement.source.startswith(("du_", "dp_"))


def _posted(payments: Payments, movement: Movement) -> int | None:
    """Return the amount of the entry that a line is of; None where there is none."""
    reference = movement.source
    if movement.kind in CAME:
        reference = payments.intent_of(movement.source)
    kind = "funds" if movement.kind in CAME else "refund"
    if _is_of_dispute(movement):
        kind = "dispute" if movement.minor < 0 else "reversal"
    row = JournalEntryRow.objects.filter(reference=reference, kind=kind).first()
    return None if row is None else max(row.nanos)


def _settle(store: EventStore, payments: Payments, movement: Movement, now: datetime) -> bool:
    if movement.kind in CAME:
        intent = payments.intent_of(movement.source)
        return bool(intent) and settle_intent(store, payments.intent(intent), by=BY, now=now)
    if movement.kind in WENT:
        return settle_refund(store, payments.refund(movement.source), by=BY, now=now)
    state = payments.dispute(movement.source)
    if settle_dispute(store, payments, state, by=BY, now=now):
        return True
    return billing.settle_taken_back(store, payments, state, by=BY, now=now)


def _pay_fee(store: EventStore, movement: Movement, now: datetime) -> None:
    """Count the fee of a line, once, by an entry of its own."""
    if movement.fee_minor:
        pay_processing_fee(
            store,
            platform_id=PLATFORM_ID,
            money=money_of(movement.fee_minor, movement.currency),
            reference=movement.movement,
            by=BY,
            now=now,
        )


def _keep(payments: Payments, movement: Movement, difference: Difference | None) -> None:
    came = movement.kind in CAME
    PaymentMovement.objects.update_or_create(
        movement=movement.movement,
        defaults={
            "kind": movement.kind[:40],
            "minor": movement.minor,
            "fee_minor": movement.fee_minor,
            "currency": movement.currency,
            "source": movement.source[:80],
            "intent": payments.intent_of(movement.source) if came else "",
            "at": movement.at,
            "difference": difference.kind if difference is not None else "",
            "words": difference.words[:300] if difference is not None else "",
        },
    )


def _missing_there(since: datetime, until: datetime, now: datetime) -> Iterator[Difference]:
    """Yield the entries of a span that the service has no line for."""
    rows = JournalEntryRow.objects.filter(
        at__gte=since, at__lt=until, kind__in=("refund", "dispute", "funds")
    )
    for row in rows.order_by("position"):
        if not row.reference.startswith(OURS):
            continue
        if row.kind == "funds" and _came(row):
            continue
        if row.kind != "funds" and PaymentMovement.objects.filter(source=row.reference).exists():
            continue
        kind = "in-flight" if now - row.at < IN_FLIGHT else "missing-there"
        words = f"{row.reference}: the payment service has no line for it"
        yield Difference(kind=kind, about=row.reference, words=words)


def _came(row: JournalEntryRow) -> bool:
    return PaymentMovement.objects.filter(intent=row.reference).exists()
