"""An account that goes on from what was carried forward.

What it needs of older events is asked for by id, one hold or one entry at a time, so a decision
costs the same however long the account has been in use, and means the same as with all of it read.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from ledger.domain.carried import AccountCarried
from ledger.domain.event import Event
from ledger.domain.holds import HOLD_KINDS, Hold, hold_after
from ledger.domain.ids import EntryId, HoldId
from ledger.domain.journal import ENTRY_KINDS, EntryEvent

GATHERED = ("holds", "entries", "credited")
"""What an account gathers by id."""

KeyT = TypeVar("KeyT", bound=UUID)
ValueT = TypeVar("ValueT")

Find = Callable[[UUID], Sequence[Event]]
"""Returns the events of before that carry an id as that of their hold or entry, in their order."""


class Recalled(MutableMapping[KeyT, ValueT]):
    """What was gathered since, and, found when asked for, what is older.

    It cannot be walked: what is older would have to be read, and left out it would be missed.
    """

    def __init__(self, recall: Callable[[KeyT], ValueT | None]) -> None:
        self._recall = recall
        self._known: dict[KeyT, ValueT] = {}

    def __getitem__(self, key: KeyT) -> ValueT:
        if key in self._known:
            return self._known[key]
        found = self._recall(key)
        if found is None:
            raise KeyError(key)
        return self._known.setdefault(key, found)

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        self._known[key] = value

    def __delitem__(self, key: KeyT) -> None:
        raise TypeError("what was recorded stays")

    def __iter__(self) -> Iterator[KeyT]:
        raise TypeError("an account that was carried forward is asked by id, not walked")

    def __len__(self) -> int:
        raise TypeError("an account that was carried forward is asked by id, not counted")


def fields_of(carried: AccountCarried, find: Find) -> dict[str, Any]:
    """Return the fields of an account as it was carried forward."""
    return {
        "opened": carried.opened,
        "total": carried.total,
        "held": carried.held,
        "overdraft_nanos": carried.overdraft_nanos,
        "for_use_nanos": carried.for_use_nanos,
        "holds": Recalled[HoldId, Hold](partial(_hold, find)),
        "entries": Recalled[EntryId, EntryEvent](partial(_entry, find)),
        "stored": {each.volume_id: each.stored for each in carried.volumes},
        "credited": {each.name: each.entry_id for each in carried.references},
        "stopped": frozenset(carried.stopped),
    }


def _hold(find: Find, hold_id: HoldId) -> Hold | None:
    hold: Hold | None = None
    for event in find(hold_id):
        if isinstance(event, HOLD_KINDS) and event.hold_id == hold_id:
            hold = hold_after(hold, event)
    return hold


def _entry(find: Find, entry_id: EntryId) -> EntryEvent | None:
    for event in find(entry_id):
        if isinstance(event, ENTRY_KINDS) and event.entry_id == entry_id:
            return event
    return None


def beside(account: Any) -> dict[str, Any]:
    """Return what an account gathered so that it may go on without changing the account's own."""
    return {name: ChainMap({}, getattr(account, name)) for name in GATHERED}
