"""An owner's account at Stripe, as people ask for it: set up, gone on with, looked at, chosen."""

from __future__ import annotations

from datetime import datetime

from ledger import paying
from ledger.commands import connect as commands
from ledger.connect.settling import settle_account
from ledger.connect.transfers import make_account
from ledger.domain.connect_events import Channel
from ledger.domain.connecting import need_made
from ledger.domain.ids import UserId
from ledger.domain.payees import Payee
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load
from ledger.funding.setup import PaymentsNotSetUp
from ledger.models import PayeeRow
from ledger.payments import default_payments
from ledger.payments.port import Payments, PaymentsAway, PaymentsRefused

BACK, AGAIN = "/payouts?stripe=back", "/payouts?stripe=again"
NOT_SET_UP = "Nobody is paid over Stripe here: payouts go by bank file."


class StripePayoutsNotSetUp(PaymentsNotSetUp):
    """Nobody is paid over Stripe here: payouts go by bank file.

    Whoever runs the platform sets OFFPEAK_STRIPE_KEY, and turns Connect on at Stripe.
    """


class StripeAway(Refusal):
    """Stripe does not answer at the moment. Nothing is lost.

    Try again in a minute.
    """

    status = 503


class StripeRefuses(Refusal):
    """Stripe refuses this; `words` says why.

    Whoever runs the platform looks at it there: Connect may not be turned on.
    """


def is_offered() -> bool:
    """Tell if owners can be paid over Stripe here."""
    return default_payments() is not None


def need_connect() -> Payments:
    """Return who pays owners. Raises: StripePayoutsNotSetUp."""
    payments = default_payments()
    if payments is None:
        raise StripePayoutsNotSetUp()
    return payments


def begin(
    store: EventStore, row: PayeeRow, *, country: str, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Ask for an account at Stripe. It is made at once where Stripe answers, else by the loop.

    Raises: StripePayoutsNotSetUp, CountryUnreadable, StripeRefuses: the loop asks again.
    """
    payments = need_connect()
    position = commands.ask_stripe_account(
        store, paying.of_row(row), country=country.upper(), user_id=user_id, by=by, now=now
    )
    try:
        make_account(store, payments, row, now=now)
    except PaymentsAway:
        return position
    except PaymentsRefused as refused:
        raise _said(refused) from None
    return store.head()


def onboarding(row: PayeeRow, store: EventStore, *, site: str) -> str:
    """Return a page at Stripe on which the owner goes on; it can be used once, within minutes.

    site: where owners come back to, as they reach it.

    Raises: StripePayoutsNotSetUp, StripeAccountMissing, StripeAway, StripeRefuses.
    """
    payments, account = need_connect(), _account_of(store, row)
    try:
        return payments.onboarding(account, back=f"{site}{BACK}", again=f"{site}{AGAIN}")
    except (PaymentsAway, PaymentsRefused) as failure:
        raise _said(failure) from None


def dashboard(row: PayeeRow, store: EventStore) -> str:
    """Return a page at Stripe on which the owner sees its account; it can be used once.

    Raises: StripePayoutsNotSetUp, StripeAccountMissing, StripeAway, StripeRefuses.
    """
    payments, account = need_connect(), _account_of(store, row)
    try:
        return payments.dashboard(account)
    except (PaymentsAway, PaymentsRefused) as failure:
        raise _said(failure) from None


def look(row: PayeeRow, store: EventStore, *, by: Meta, now: datetime) -> Position:
    """Ask Stripe how the account stands.

    Raises: StripePayoutsNotSetUp, StripeAccountMissing, StripeAway, StripeRefuses.
    """
    payments, account = need_connect(), _account_of(store, row)
    try:
        settle_account(store, payments.connected(account), by=by, now=now)
    except (PaymentsAway, PaymentsRefused) as failure:
        raise _said(failure) from None
    return store.head()


def choose(
    store: EventStore,
    row: PayeeRow,
    channel: Channel,
    *,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Say how an owner's payouts go out; over Stripe only after the wait of a new bank account.

    Raises: StripePayoutsNotSetUp, StripeAccountMissing, StripeAccountNotReady.
    """
    if channel == "stripe":
        need_connect()
    return commands.choose_channel(
        store,
        paying.of_row(row),
        channel,
        wait_seconds=paying.terms().details_wait_seconds,
        user_id=user_id,
        by=by,
        now=now,
    )


def _account_of(store: EventStore, row: PayeeRow) -> str:
    return need_made(load(store, Payee, row.account_id) or Payee()).connected


def _said(failure: PaymentsAway | PaymentsRefused) -> Refusal:
    if isinstance(failure, PaymentsAway):
        return StripeAway()
    return StripeRefuses(words=str(failure))
