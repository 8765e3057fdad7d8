"""The steps of closing a month, and where what is left to do before is mended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.queries.closing import MonthSeen

StepState = Literal["done", "now", "later"]

MENDED: Mapping[str, tuple[str, str]] = {
    "trial-balance": ("Trial balance", "/finance#h-trial"),
    "use-rated": ("Hosts and their health", "/ops/health"),
    "use-charged": ("Accounts that do not cover it", "/wallet"),
    "payouts": ("Payouts", "/payouts"),
    "transfers": ("Payouts", "/payouts"),
    "stripe": ("Wallets and payments", "/wallet"),
}
"""By the name of a check: what the page is called where it is put in order, and its address."""
PLACES: Mapping[str, str] = {
    "lease": "/leases/{}",
    "account": "/finance/accounts/{}",
    "payout": "/payouts/{}",
    "entry": "/finance/entries/{}",
    "invoice": "/invoices/{}",
}
"""By what an open point is about: where that is seen."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to a closed month."""

    title: str
    words: str
    state: StepState


def steps_of(seen: MonthSeen, *, over: bool, ready: bool) -> list[Step]:
    """Return the steps in order: those that are done, the one that is next, and those after it.

    over: the month is. ready: everything on the checklist is in order.
    """
    closed = seen.state == "closed"
    soft = closed or seen.state == "soft-closed"
    frozen = closed and (seen.row is None or bool(seen.row.exports))
    told = [
        ("Over", "the month has ended, in UTC", over or soft),
        ("Soft-closed", "everybody sees that it is about to be closed", soft),
        ("Checked", "the checklist is in order", closed or (soft and ready)),
        ("Closed", "nothing counts in it any more", closed),
        ("Exports frozen", "written once, with their manifests", frozen),
    ]
    found, is_next = list[Step](), True
    for title, words, done in told:
        state: StepState = "done" if done else "now" if is_next else "later"
        is_next = is_next and done
        found.append(Step(title, words, state))
    return found
