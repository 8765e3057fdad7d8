"""Whether an owner gets an account at Stripe, and when payouts go there.

Who got hold of an owner's log-in would have the earnings paid to an account of their own. So a
choice to be paid there waits as another bank account does, and anybody of the owner may undo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.connect_events import (
    BankPayoutSeen,
    BankPayoutState,
    Channel,
    ConnectedState,
    PayoutChannelChosen,
    StripeAccountAsked,
    StripeAccountMade,
    StripeAccountSeen,
)
from ledger.domain.connected import Connected
from ledger.domain.ids import AccountId, UserId
from ledger.domain.money import Money
from ledger.domain.payees import Payee, PayeeOf
from ledger.domain.refusal import Invalid, Refusal

MISSING_MAX, WORDS_MAX = 20, 200


class StripeAccountMissing(Refusal):
    """There is no account at Stripe for these earnings yet.

    The owner sets one up on the page Payouts.
    """


class StripeAccountNotReady(Refusal):
    """The account at Stripe takes no money yet; `state` says how it stands.

    The owner goes on with it at Stripe, from the page Payouts.
    """


class CountryUnreadable(Invalid):
    """A country is two capital letters, such as DE."""


def ask(
    payee: Payee, of: PayeeOf, *, country: str, by_user: UserId, now: datetime
) -> list[StripeAccountAsked]:
    """Decide that an owner gets an account at Stripe, once. Raises: CountryUnreadable."""
    if country and not (len(country) == 2 and country.isascii() and country.isupper()):
        raise CountryUnreadable()
    if payee.connected is not None:
        return []
    return [
        StripeAccountAsked(
            account_id=of.account_id,
            tenant_id=of.tenant_id,
            currency=of.currency,
            country=country,
            by_user=by_user,
            at=now,
        )
    ]


def made(
    payee: Payee, account_id: AccountId, connected: str, *, now: datetime
) -> list[StripeAccountMade]:
    """Decide which account at Stripe it is. Raises: StripeAccountMissing: nobody asked for one."""
    if payee.connected is None:
        raise StripeAccountMissing()
    if payee.connected.connected:
        return []
    return [StripeAccountMade(account_id=account_id, connected=connected, at=now)]


def seen(
    payee: Payee,
    account_id: AccountId,
    *,
    state: ConnectedState,
    missing: Sequence[str],
    words: str,
    now: datetime,
) -> list[StripeAccountSeen]:
    """Decide whether what Stripe says of an account is news. Raises: StripeAccountMissing."""
    known = need_made(payee)
    missing, words = tuple(missing)[:MISSING_MAX], words[:WORDS_MAX]
    if (known.state, known.missing, known.words) == (state, missing, words):
        return []
    return [
        StripeAccountSeen(account_id=account_id, state=state, missing=missing, words=words, at=now)
    ]


def choose(
    payee: Payee,
    of: PayeeOf,
    channel: Channel,
    *,
    wait_seconds: int,
    by_user: UserId,
    now: datetime,
) -> list[PayoutChannelChosen]:
    """Decide how an owner's payouts go out. To a bank account that was confirmed it is at once.

    Raises: StripeAccountMissing, StripeAccountNotReady.
    """
    if payee.channel == channel:
        return []
    if channel == "stripe":
        known = need_made(payee)
        if known.state != "ready":
            raise StripeAccountNotReady(state=known.state, words=known.words)
    waits = wait_seconds if channel == "stripe" else 0
    return [
        PayoutChannelChosen(
            account_id=of.account_id,
            channel=channel,
            usable_from=now + timedelta(seconds=waits),
            by_user=by_user,
            at=now,
        )
    ]


def bank_payout(
    payee: Payee,
    account_id: AccountId,
    *,
    reference: str,
    state: BankPayoutState,
    money: Money,
    arrives_on: date,
    words: str,
    now: datetime,
) -> list[BankPayoutSeen]:
    """Decide whether what Stripe says of a payout to an owner's bank is news.

    One that failed may have arrived before: banks send money back. Raises: StripeAccountMissing.
    """
    need_made(payee)
    if payee.bank_payouts.get(reference) in (state, "failed"):
        return []
    return [
        BankPayoutSeen(
            account_id=account_id,
            reference=reference,
            state=state,
            money=money,
            arrives_on=arrives_on,
            words=words[:WORDS_MAX],
            at=now,
        )
    ]


def need_made(payee: Payee) -> Connected:
    """Return the account at Stripe. Raises: StripeAccountMissing."""
    if payee.connected is None or not payee.connected.connected:
        raise StripeAccountMissing()
    return payee.connected


def details_named(account_id: AccountId, connected: str) -> UUID:
    """Return by what a payout's event names the account at Stripe that it goes to."""
    return uuid5(account_id, f"connected:{connected}")
