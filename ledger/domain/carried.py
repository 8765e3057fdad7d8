"""An account's balance carried forward: where a fold of its stream may begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.events import AccountOpened
from ledger.domain.ids import AccountId, EntryId
from ledger.domain.money import Money
from ledger.domain.storage import Stored


@dataclass(frozen=True, slots=True)
class CarriedVolume:
    """What of a volume was charged by then."""

    volume_id: UUID
    stored: Stored


@dataclass(frozen=True, slots=True)
class CarriedReference:
    """The entry that first added funds for a reference whose name it does not have itself."""

    name: str
    entry_id: EntryId


class AccountCarried(Event, name="ledger.account-carried-forward", version=3, grown_from=1):
    """The events of an account up to `up_to_version` come to these amounts: its opening statement.

    event_id: of the event at that version. period: the month in which it was made. Its holds and
    entries are not listed: each is found in the stream by its id. for_use_nanos: as in Account.
    """

    account_id: AccountId
    up_to_version: int
    event_id: UUID
    period: str
    opened: AccountOpened
    total: Money
    held: Money
    overdraft_nanos: int | None
    volumes: tuple[CarriedVolume, ...]
    references: tuple[CarriedReference, ...]
    at: datetime
    stopped: tuple[str, ...] = ()
    for_use_nanos: int = 0
