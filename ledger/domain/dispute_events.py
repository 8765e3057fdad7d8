"""Facts of disputes about charged use: streams dispute-<dispute_id>."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, DisputeId, EntryId, HoldId, LeaseId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.span import Window

Outcome = Literal["upheld", "in-part", "dismissed"]


@dataclass(frozen=True, slots=True)
class Contested:
    """What one account got of the contested amount. hold_id: what sets it aside there.

    owner_id: whose earnings; None: the platform's fees, which nobody pays out.
    """

    account_id: AccountId
    owner_id: TenantId | None
    hold_id: HoldId | None
    money: Money


class DisputeOpened(Event, name="ledger.dispute-opened"):
    """Who paid for a usage window says that less was used than its owners' meters say.

    charged_millis, used_millis: GPU-milliseconds that were charged, and those that are not
    contested. money: what the difference came to; it is set aside until somebody decides, or until
    `decide_by`, when what was metered stands. opened_by: None where the two meters were compared
    and differ by more than they may.
    """

    dispute_id: DisputeId
    entry_id: EntryId
    account_id: AccountId
    tenant_id: TenantId
    lease_id: LeaseId
    window: Window
    charged_millis: int
    used_millis: int
    money: Money
    contested: tuple[Contested, ...]
    reason: str
    opened_by: UserId | None
    decide_by: datetime
    at: datetime


class DisputeSaid(Event, name="ledger.dispute-said"):
    """One of those that are part of a dispute, or of the platform, said something about it.

    number: counts up from 1 in each dispute. tenant_id: on whose behalf.
    """

    dispute_id: DisputeId
    number: int
    tenant_id: TenantId
    said_by: UserId
    text: str
    at: datetime


class DisputeDecided(Event, name="ledger.dispute-decided", version=2, grown_from=1):
    """A dispute was upheld: who paid gets the contested amount back; or dismissed: it stands.

    decided_by: None where the time to decide was over. given_back: of the contested amount, where
    it was upheld in part, or where no more was left of it, since some of the charge went back
    before; None: all of it, or nothing.
    """

    dispute_id: DisputeId
    outcome: Outcome
    reason: str
    decided_by: UserId | None
    at: datetime
    given_back: Money | None = None


class UseCredited(Event, name="ledger.use-credited", version=2, grown_from=1):
    """A dispute was decided for who paid: one of those that got something of a charge gives back.

    An entry of the account that paid (`account_id`, up; the earnings or fees that give, down), in
    the month in which it is decided: what it corrects is never changed. corrects: the entry that
    charged `window`. owner_id: whose earnings give, or the platform. money: above zero. hold_id: of
    the charge; None in entries of before, which did not name it.
    """

    account_id: AccountId
    entry_id: EntryId
    corrects: EntryId
    dispute_id: DisputeId
    lease_id: LeaseId
    window: Window
    owner_id: TenantId
    money: Money
    postings: tuple[Posting, ...]
    at: datetime
    hold_id: HoldId | None = None


DisputeEvent = DisputeOpened | DisputeSaid | DisputeDecided
