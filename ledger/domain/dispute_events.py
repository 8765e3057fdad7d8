"""Facts of disputes about charged use: streams dispute-<dispute_id>."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, DisputeId, EntryId, HoldId, LeaseId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.span import Window

Outcome = Literal["upheld", "dismissed"]


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
    `decide_by`, when what was metered stands.
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
    opened_by: UserId
    decide_by: datetime
    at: datetime


class DisputeDecided(Event, name="ledger.dispute-decided"):
    """A dispute was upheld: who paid gets the contested amount back; or dismissed: it stands.

    decided_by: None where the time to decide was over.
    """

    dispute_id: DisputeId
    outcome: Outcome
    reason: str
    decided_by: UserId | None
    at: datetime


DisputeEvent = DisputeOpened | DisputeDecided
