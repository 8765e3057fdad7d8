"""Topping a wallet up: by hand, and by itself where little is available."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid5

from ledger.domain.accounts import Account, CurrencyMismatch
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.ids import AccountId, PaymentId, UserId
from ledger.domain.minor_units import minor_of
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.wallet import Payment, Wallet
from ledger.domain.wallet_events import (
    AutomaticTopUpEnded,
    AutomaticTopUpSet,
    MethodRemovalAsked,
    MethodRemoved,
    MethodSaved,
    PayerKnown,
    PaymentFailed,
    PaymentOpened,
    PaymentRequested,
    PaymentSucceeded,
    WalletEvent,
    Way,
)

UNFINISHED_MAX = 100
"""Top-ups of one wallet that may be waiting at once: pages that nobody paid on run out in a day."""
PAUSES = (timedelta(hours=1), timedelta(hours=6), timedelta(hours=24))
"""How long an automatic top-up waits after the first, second … decline in a row; then it ends."""
DECLINED_ENDS = "The card was declined four times in a row."


class NotAWallet(Refusal):
    """Only a prepaid account is topped up. A cost centre is billed inside its organisation."""


class PaymentUnknown(Unknown):
    """This wallet has no such top-up."""


class PaymentRequestedOtherwise(Refusal):
    """This id already names a top-up on other terms.

    If it is meant as a new top-up, give it a new id.
    """


class TooManyUnfinished(Refusal):
    """A hundred top-ups of this wallet are waiting to be paid.

    Pay one of them, or wait until they run out.
    """


class MethodUnknown(Unknown):
    """This wallet has no such saved card."""


class AutomaticUnclear(Invalid):
    """An automatic top-up adds at most as much as it may add on a day, when less is available.

    The threshold is at least zero, the amount at least 1.00, the most on a day no less than that.
    """


def need_wallet(account: Account) -> None:
    """Refuse to top up what is no wallet.

    Raises: NotAWallet.
    """
    if account.opened.kind != "prepaid":
        raise NotAWallet()


def request(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    currency: str,
    payment_id: PaymentId,
    money: Money,
    way: Way,
    method: str,
    asked_by: UserId | None,
    now: datetime,
) -> list[PaymentRequested]:
    """Decide whether a top-up may be asked for: once for its id."""
    wallet = wallet or Wallet()
    event = PaymentRequested(
        account_id=account_id,
        payment_id=payment_id,
        money=money,
        way=way,
        method=method,
        asked_by=asked_by,
        at=now,
    )
    before = wallet.payments.get(payment_id)
    if before is not None:
        if replace(before.asked, at=now) != event:
            raise PaymentRequestedOtherwise(payment_id=payment_id)
        return []
    if money.currency != currency:
        raise CurrencyMismatch(currency=currency)
    minor_of(money)
    if way != "checkout" and method not in wallet.methods:
        raise MethodUnknown(method=method[:60])
    if sum(each.state in ("asked", "open") for each in wallet.payments.values()) >= UNFINISHED_MAX:
        raise TooManyUnfinished()
    return [event]


def know_payer(
    wallet: Wallet | None, *, account_id: AccountId, payer: str, now: datetime
) -> list[PayerKnown]:
    """Note who the wallet's payer is at the payment service."""
    if wallet is not None and wallet.payer:
        return []
    return [PayerKnown(account_id=account_id, payer=payer, at=now)]


def open_payment(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    reference: str,
    url: str,
    now: datetime,
) -> list[PaymentOpened]:
    """Note that the payment service took a request on; nothing where it is further already."""
    if _payment(wallet, payment_id).state != "asked":
        return []
    return [
        PaymentOpened(
            account_id=account_id, payment_id=payment_id, reference=reference, url=url, at=now
        )
    ]


def succeed(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    intent: str,
    money: Money,
    now: datetime,
) -> list[PaymentSucceeded]:
    """Note that money came in, once for the payment service's id, whatever was noted before."""
    _payment(wallet, payment_id)
    if wallet is not None and intent in wallet.received:
        return []
    return [
        PaymentSucceeded(
            account_id=account_id, payment_id=payment_id, intent=intent, money=money, at=now
        )
    ]


def fail(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    reason: str,
    declined: bool,
    now: datetime,
) -> list[WalletEvent]:
    """Note that a payment did not come about; after the fourth in a row automatic ones end."""
    if _payment(wallet, payment_id).state not in ("asked", "open"):
        return []
    assert wallet is not None
    failed = PaymentFailed(
        account_id=account_id,
        payment_id=payment_id,
        reason=reason[:TEXT_LENGTH_MAX],
        declined=declined,
        at=now,
    )
    after = Wallet.evolve(wallet, failed)
    if after.automatic is None or len(_declined_in_a_row(after)) <= len(PAUSES):
        return [failed]
    return [failed, AutomaticTopUpEnded(account_id=account_id, reason=DECLINED_ENDS, at=now)]


def save_method(
    wallet: Wallet | None, *, account_id: AccountId, method: str, label: str, now: datetime
) -> list[MethodSaved]:
    """Note that the payment service keeps a card, unless somebody asked it not to."""
    wallet = wallet or Wallet()
    if wallet.methods.get(method) == label or method in wallet.leaving:
        return []
    return [MethodSaved(account_id=account_id, method=method, label=label, at=now)]


def ask_to_remove(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    method: str,
    asked_by: UserId | None,
    now: datetime,
) -> list[WalletEvent]:
    """Decide whether a card is kept no longer; automatic top-ups with it end.

    Raises: MethodUnknown.
    """
    if wallet is None or method not in wallet.methods:
        if wallet is not None and method in wallet.leaving:
            return []
        raise MethodUnknown(method=method[:60])
    asked: list[WalletEvent] = [
        MethodRemovalAsked(account_id=account_id, method=method, asked_by=asked_by, at=now)
    ]
    return [*asked, *_automatic_without(wallet, account_id, method, now)]


def remove_method(
    wallet: Wallet | None, *, account_id: AccountId, method: str, now: datetime
) -> list[WalletEvent]:
    """Note that the payment service keeps a card no longer."""
    if wallet is None or not (method in wallet.methods or method in wallet.leaving):
        return []
    gone: list[WalletEvent] = [MethodRemoved(account_id=account_id, method=method, at=now)]
    return [*gone, *_automatic_without(wallet, account_id, method, now)]


def _automatic_without(
    wallet: Wallet, account_id: AccountId, method: str, now: datetime
) -> list[AutomaticTopUpEnded]:
    if wallet.automatic is None or wallet.automatic.method != method:
        return []
    reason = "The card that it paid with was removed."
    return [AutomaticTopUpEnded(account_id=account_id, reason=reason, at=now)]


def set_automatic(wallet: Wallet | None, terms: AutomaticTopUpSet) -> list[AutomaticTopUpSet]:
    """Decide whether a wallet may top itself up on these terms.

    Raises: MethodUnknown, AutomaticUnclear, AmountNotPayable.
    """
    if wallet is None or terms.method not in wallet.methods:
        raise MethodUnknown(method=terms.method[:60])
    if terms.below_nanos < 0 or terms.most_per_day_nanos < terms.amount_nanos:
        raise AutomaticUnclear()
    if wallet.automatic is not None and replace(wallet.automatic, at=terms.at) == terms:
        return []
    return [terms]


def end_automatic(
    wallet: Wallet | None, *, account_id: AccountId, reason: str, now: datetime
) -> list[AutomaticTopUpEnded]:
    """Decide that a wallet does not top itself up any more."""
    if wallet is None or wallet.automatic is None:
        return []
    return [AutomaticTopUpEnded(account_id=account_id, reason=reason, at=now)]


def request_automatic(
    wallet: Wallet | None, *, account_id: AccountId, available: Money, now: datetime
) -> list[PaymentRequested]:
    """Decide whether the wallet's own rule asks for a top-up now.

    Not while one is under way, not beyond what may be added on a day, and after a decline only
    when its pause is over.
    """
    rule = wallet.automatic if wallet is not None else None
    if wallet is None or rule is None or available.nanos >= rule.below_nanos:
        return []
    mine = [each for each in wallet.payments.values() if each.asked.way == "automatic"]
    if any(each.state in ("asked", "open") for each in mine):
        return []
    today = now.astimezone(UTC).date()
    added = sum(
        each.asked.money.nanos
        for each in mine
        if each.state == "succeeded" and each.asked.at.astimezone(UTC).date() == today
    )
    if added + rule.amount_nanos > rule.most_per_day_nanos:
        return []
    declined = _declined_in_a_row(wallet, since=rule.at)
    if declined:
        pause, last = PAUSES[min(len(declined), len(PAUSES)) - 1], declined[-1].ended_at
        assert last is not None
        if now < last + pause:
            return []
    return request(
        wallet,
        account_id=account_id,
        currency=available.currency,
        payment_id=PaymentId(uuid5(account_id, f"automatic:{len(mine)}")),
        money=Money(rule.amount_nanos, available.currency),
        way="automatic",
        method=rule.method,
        asked_by=None,
        now=now,
    )


def _declined_in_a_row(wallet: Wallet, *, since: datetime | None = None) -> Sequence[Payment]:
    """Return the automatic top-ups that failed since the last that came in, oldest first."""
    rule = wallet.automatic
    since = since or (rule.at if rule is not None else None)
    found: list[Payment] = []
    for each in wallet.payments.values():
        if each.asked.way != "automatic" or (since is not None and each.asked.at < since):
            continue
        if each.state == "succeeded":
            found = []
        elif each.state == "failed":
            found.append(each)
    return found


def _payment(wallet: Wallet | None, payment_id: PaymentId) -> Payment:
    if wallet is None or payment_id not in wallet.payments:
        raise PaymentUnknown(payment_id=payment_id)
    return wallet.payments[payment_id]
