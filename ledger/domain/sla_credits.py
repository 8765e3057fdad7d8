"""What an owner credits for a lease that missed what its offer promised: once, of what was charged.

The platform keeps its fee: it is the owner who promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain import journal
from ledger.domain.account_ids import earnings_account
from ledger.domain.accounts import Account, EntryRecordedOtherwise
from ledger.domain.events import SlaCredited
from ledger.domain.holds import TEXT_LENGTH_MAX, HoldUnknown, need_text
from ledger.domain.ids import HoldId, LeaseId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid

PPM = 1_000_000


class SlaCreditUnreadable(Invalid):
    """A credit is a share between nothing and all of what was charged, for some of its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaMiss:
    """A promise that was missed: of whose GPUs of a lease, and which share is credited.

    gpus: the owner's, of_gpus: all of the lease's. reason: the figures, in words.
    """

    hold_id: HoldId
    lease_id: LeaseId
    owner_id: TenantId
    gpus: int
    of_gpus: int
    credit_ppm: int
    reason: str


def owners_part(charged: Money, *, gpus: int, of_gpus: int) -> Money:
    """Return what some of a lease's GPUs are of its charge, rounded down to a nano-unit."""
    return Money(charged.nanos * gpus // of_gpus, charged.currency)


def credit_of(account: Account, miss: SlaMiss) -> tuple[Money, Money]:
    """Return the owner's part of what disputes left of the charges, and what is credited of it.

    Both rounded down to a nano-unit; at most what was not given back yet. Raises: HoldUnknown.
    """
    if miss.hold_id not in account.holds:
        raise HoldUnknown(hold_id=miss.hold_id)
    captured = account.holds[miss.hold_id].captured
    given = account.holds[miss.hold_id].given_back
    charged = Money(captured.nanos - given.disputed_nanos, captured.currency)
    part = owners_part(charged, gpus=miss.gpus, of_gpus=miss.of_gpus)
    return part, min(part.share(miss.credit_ppm), given.left_of(captured))


def _reason(account: Account, miss: SlaMiss) -> str:
    given = account.holds[miss.hold_id].given_back
    if not given.disputed_nanos:
        return miss.reason
    return f"{miss.reason}; of what disputes left"[:TEXT_LENGTH_MAX]


def credit_sla(account: Account, miss: SlaMiss, *, now: datetime) -> list[SlaCredited]:
    """Decide what a miss credits; once for each lease and owner, and nothing where that is zero.

    Asked for when the hold is released, so that all its use is charged; use that is proved later
    changes no credit.

    Raises: HoldUnknown, SlaCreditUnreadable, TextUnreadable, EntryRecordedOtherwise.
    """
    if not 0 <= miss.credit_ppm <= PPM or not 0 < miss.gpus <= miss.of_gpus:
        raise SlaCreditUnreadable(credit_ppm=miss.credit_ppm, gpus=miss.gpus)
    need_text(miss.reason, length_max=TEXT_LENGTH_MAX)
    entry_id = journal.sla_entry(miss.lease_id, miss.owner_id)
    before = account.entries.get(entry_id)
    if isinstance(before, SlaCredited):
        if (before.credit_ppm, before.hold_id) != (miss.credit_ppm, miss.hold_id):
            raise EntryRecordedOtherwise(entry_id=entry_id)
        return []
    charged, money = credit_of(account, miss)
    if money.nanos == 0:
        return []
    own = account.opened.account_id
    earnings = earnings_account(miss.owner_id, money.currency)
    return [
        SlaCredited(
            account_id=own,
            entry_id=entry_id,
            hold_id=miss.hold_id,
            lease_id=miss.lease_id,
            owner_id=miss.owner_id,
            charged=charged,
            credit_ppm=miss.credit_ppm,
            reason=_reason(account, miss),
            money=money,
            postings=journal.transfer(source=earnings, target=own, money=money),
            at=now,
        )
    ]
