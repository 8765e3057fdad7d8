"""What a bank says of money that left or came: whether a line is about a payout, and what it does.

Each line has a type. Only `paid` and `returned` change anything; the others are for somebody to
look at, or say that it is known already.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from ledger.domain.money import Money
from ledger.domain.payees import Payout

LineKind = Literal["paid", "returned", "known", "pending", "amount", "state", "not-ours"]
"""paid, returned: put on the books by it. known: they have it. pending: the bank has not booked it.
amount: another one than the payout's. state: the payout is in one that this does not go with.
not-ours: it names no payout of ours."""

WORDS: dict[LineKind, str] = {
    "paid": "the payout is paid",
    "returned": "the payout came back: it is earnings again",
    "known": "on the books already",
    "pending": "the bank has not booked it yet",
    "not-ours": "no payout of ours has this reference",
}
REASONS = {
    "AC01": "the account number is wrong",
    "AC03": "the account number is wrong",
    "AC04": "the account is closed",
    "AC06": "the account is blocked",
    "AC13": "the account is of another kind",
    "AG01": "the account takes no transfers",
    "AM05": "sent twice",
    "BE04": "the owner's address is missing",
    "CNOR": "the owner's bank is not reachable",
    "FOCR": "called back",
    "MD07": "the account holder died",
    "MS02": "refused by the account holder",
    "MS03": "no reason given",
    "RC01": "the BIC is wrong",
    "RR04": "regulatory reason",
    "TM01": "after the cut-off",
}
"""Return reasons of ISO 20022 (ExternalReturnReason1Code), as people read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLine:
    """One line of what a bank said.

    end_to_end_id: what we gave the transfer. came: money came in, or back. booked: it is final.
    reference: what the bank calls it. words: why it came back.
    """

    end_to_end_id: str
    money: Money
    came: bool
    booked: bool
    reference: str
    on: date
    words: str = ""


def judge(line: BankLine, payout: Payout | None) -> tuple[LineKind, str]:
    """Decide what a line does to a payout, and say it."""
    kind = _kind(line, payout)
    if kind == "amount":
        assert payout is not None
        return kind, f"the payout is {payout.requested.money}"
    if kind == "state":
        assert payout is not None
        way = "went out over Stripe" if payout.channel == "stripe" else f"is {payout.state}"
        return kind, f"the payout {way}"
    return kind, WORDS[kind]


def _kind(line: BankLine, payout: Payout | None) -> LineKind:
    if payout is None:
        return "not-ours"
    if payout.channel != "bank-file":
        return "state"
    if line.money != payout.requested.money:
        return "amount"
    if not line.booked:
        return "pending"
    match line.came, payout.state:
        case False, "sent":
            return "paid"
        case False, "paid":
            return "known"
        case False, "returned":
            return "known" if payout.paid is not None else "state"
        case True, "sent" | "paid":
            return "returned"
        case True, "returned":
            return "known"
        case _:
            return "state"


def reason_of(code: str, more: str) -> str:
    """Return why money came back, from the bank's code and words."""
    said = REASONS.get(code, "")
    parts = [part for part in (code, said, more.strip()) if part]
    return ": ".join(parts) or "the bank gave no reason"
