"""What a bank tells in a file, put on the books: payouts that it paid, and those that came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger import paying
from ledger.commands import payouts as commands
from ledger.domain.bank_lines import BankLine, LineKind, judge
from ledger.domain.ids import AccountId, UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee, Payout
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, load
from ledger.models import PayoutRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A line, what it was about, and what came of it. payout_id: None: nothing of ours."""

    line: BankLine
    payout_id: UUID | None
    kind: LineKind
    words: str


def hear(
    store: EventStore,
    lines: Sequence[BankLine],
    *,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> list[Heard]:
    """Put on the books what a bank said, line by line; the same file again changes nothing.

    What left is read before what came back on the same day. One line that cannot be taken leaves
    the others as they are.
    """
    named = _payouts_named({line.end_to_end_id for line in lines if line.end_to_end_id})
    order = sorted(range(len(lines)), key=lambda n: (lines[n].on, lines[n].came, n))
    found: dict[int, Heard] = {}
    for n in order:
        row = named.get(lines[n].end_to_end_id)
        found[n] = _take(store, lines[n], row, user_id=user_id, by=by, now=now)
    return [found[n] for n in range(len(lines))]


def _take(
    store: EventStore,
    line: BankLine,
    row: PayoutRow | None,
    *,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Heard:
    payout: Payout | None = None
    if row is not None:
        payout = (load(store, Payee, row.account_id) or Payee()).payouts.get(row.payout_id)
    kind, words = judge(line, payout)
    if row is not None and kind in ("paid", "returned"):
        account_id = AccountId(row.account_id)
        try:
            if kind == "paid":
                commands.mark_paid(
                    store,
                    account_id,
                    row.payout_id,
                    reference=line.reference,
                    paid_on=line.on,
                    currency=row.currency,
                    platform_id=PLATFORM_ID,
                    user_id=user_id,
                    by=by,
                    now=now,
                )
            else:
                commands.mark_returned(
                    store,
                    account_id,
                    row.payout_id,
                    reason=line.words,
                    currency=row.currency,
                    platform_id=PLATFORM_ID,
                    user_id=user_id,
                    by=by,
                    now=now,
                )
        except Refusal as refused:
            kind, words = "state", str(refused)
        else:
            paying.tell_outcome(store, row.account_id, row.payout_id, by=by, now=now)
    return Heard(
        line=line, payout_id=None if row is None else row.payout_id, kind=kind, words=words
    )


def _payouts_named(wanted: set[str]) -> dict[str, PayoutRow]:
    """Return the payouts in bank files whose transfers carry these ids."""
    if not wanted:
        return {}
    rows = PayoutRow.objects.exclude(file_id=None).order_by("-sent_at", "pk")
    found: dict[str, PayoutRow] = {}
    for row in rows.iterator():
        name = paying.end_to_end_id(row.payout_id)
        if name in wanted:
            found[name] = row
            if len(found) == len(wanted):
                break
    return found
