"""Whether anybody takes payments here, in words."""

from __future__ import annotations

from ledger.domain.refusal import Refusal
from ledger.funding import inbox, tries
from ledger.payments import default_payments
from ledger.payments.port import Payments

WITHOUT = (
    "No card payments are set up here: wallets are topped up by hand, and cost centres are billed"
    " inside their organisations."
)
IN_TEST = "Card payments are in test mode: no real money moves."


class PaymentsNotSetUp(Refusal):
    """No card payments are set up here.

    A wallet is topped up by a transfer that the platform's finance people enter. For cards, an
    operator sets OFFPEAK_STRIPE_KEY.
    """


def need_payments() -> Payments:
    """Return who takes payments.

    Raises: PaymentsNotSetUp.
    """
    payments = default_payments()
    if payments is None:
        raise PaymentsNotSetUp()
    return payments


def words() -> str:
    """Say what is worth knowing of how payments are taken here; empty: nothing is."""
    payments = default_payments()
    if payments is None:
        return WITHOUT
    return IN_TEST if payments.is_test else ""


def given_up() -> str:
    """Say what Stripe was asked, or told us, in vain, and is not tried any more; empty: nothing."""
    calls, notices = tries.given_up(), inbox.given_up()
    told = []
    if first := calls.first():
        told.append(f"{calls.count()} calls, such as {first.call}: {first.error}")
    if word := notices.first():
        told.append(f"{notices.count()} notices, such as {word.kind} {word.notice}: {word.error}")
    return "; ".join(told)
