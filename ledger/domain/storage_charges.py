"""Whether an account is charged for what is kept in a volume: once for each moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.domain import journal
from ledger.domain.account_ids import fee_account
from ledger.domain.accounts import (
    PAYING_KINDS,
    Account,
    AccountCannotPay,
    CurrencyMismatch,
    FundsInsufficient,
)
from ledger.domain.events import StorageCharged
from ledger.domain.holds import COST_CENTRE_LENGTH_MAX, TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import TenantId
from ledger.domain.money import NANOS_MAX, AmountTooLarge, Money
from ledger.domain.refusal import Invalid
from ledger.domain.span import Window
from ledger.domain.storage import owed_nanos, storage_entry


class StorageUnreadable(Invalid):
    """What is kept is a whole number of byte-seconds, in whole seconds, at a price from 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was kept in a volume in a window, in byte-seconds, at one price.

    beside: byte-seconds times price of what was kept before at another one.
    """

    volume_id: UUID
    title: str
    window: Window
    byte_seconds: int
    nanos_per_gib_month: int
    currency: str
    cost_centre: str
    beside: int = 0


def charge_storage(
    account: Account, pieces: Sequence[Kept], *, platform_id: TenantId, now: datetime
) -> list[StorageCharged]:
    """Decide what is charged for a volume, piece by piece in the order of time.

    A piece that begins before the end of what was charged is not charged again, so that a look too
    many changes no sum; what does not come to a nano-unit is part of the next charge. As much is
    charged as the account has; what it has not may be asked for again.

    Raises: AccountCannotPay, CurrencyMismatch, StorageUnreadable, TextUnreadable, AmountTooLarge;
        FundsInsufficient where it covers no piece.
    """
    if account.opened.kind not in PAYING_KINDS:
        raise AccountCannotPay(kind=account.opened.kind)
    events: list[StorageCharged] = []
    spent, carried = 0, 0
    before = account.stored.get(pieces[0].volume_id) if pieces else None
    until = None if before is None else before.until
    total = 0 if before is None else before.nano_byte_seconds
    paid = 0 if before is None else before.charged_nanos
    for piece in pieces:
        _check(account, piece)
        if until is not None and piece.window.starts_at < until:
            continue
        priced = piece.byte_seconds * piece.nanos_per_gib_month + piece.beside
        charged = owed_nanos(total + carried + priced) - paid
        if charged <= 0:
            carried += priced
            continue
        try:
            account.need_available(Money(spent + charged, piece.currency))
        except FundsInsufficient:
            if not events:
                raise
            break
        events.append(_charged(account, piece, carried, charged, platform_id, now))
        spent, until = spent + charged, piece.window.ends_at
        total, paid, carried = total + carried + priced, paid + charged, 0
    return events


def _check(account: Account, piece: Kept) -> None:
    if piece.currency != account.opened.currency:
        raise CurrencyMismatch(currency=account.opened.currency)
    starts_at, ends_at = piece.window.starts_at, piece.window.ends_at
    if starts_at.microsecond or ends_at.microsecond or min(piece.byte_seconds, piece.beside) < 0:
        raise StorageUnreadable()
    if not 0 <= piece.nanos_per_gib_month <= NANOS_MAX:
        raise AmountTooLarge(most=Money(NANOS_MAX, piece.currency))
    need_text(piece.title, length_max=TEXT_LENGTH_MAX)
    need_text(piece.cost_centre, length_max=COST_CENTRE_LENGTH_MAX)


def _charged(
    account: Account, piece: Kept, carried: int, nanos: int, platform_id: TenantId, now: datetime
) -> StorageCharged:
    own = account.opened.account_id
    money = Money(nanos, piece.currency)
    fees = fee_account(platform_id, piece.currency)
    return StorageCharged(
        account_id=own,
        entry_id=storage_entry(own, piece.volume_id, piece.window.starts_at),
        volume_id=piece.volume_id,
        title=piece.title,
        window=piece.window,
        byte_seconds=piece.byte_seconds,
        nanos_per_gib_month=piece.nanos_per_gib_month,
        carried=carried + piece.beside,
        charged=money,
        cost_centre=piece.cost_centre,
        postings=journal.transfer(source=own, target=fees, money=money),
        at=now,
    )
