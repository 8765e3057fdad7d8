"""Work in pages without starving anybody: each entry gets its turn, and fails alone.

A pass of a loop takes one page. An entry that cannot move yet (a silent host, an empty account)
stays on the list, and where the oldest come first such entries fill the page and everybody behind
them waits for ever. So a pass goes on behind the last page and begins again at the end of the
list: with n entries each is looked at every n / page passes. And whatever goes wrong with one
entry, expected or not, stays with that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import structlog
from django.db import connection
from django.db.models import Q

from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore
from ledger.following import AWAY

AWAY_IN_A_ROW_MAX = 3
"""So many entries after one another that find store or database away: it is not their fault."""

KeyT = TypeVar("KeyT", bound=tuple[Any, ...])
EntryT = TypeVar("EntryT")

log = structlog.get_logger()


class Turns(Generic[KeyT]):
    """Where the last pass over a list ended. Kept in memory: after a restart the first come first.

    The keys order the list and are unique: what it is sorted by, and an id.
    """

    def __init__(self) -> None:
        self._after: KeyT | None = None

    def take(self, page: Callable[[KeyT | None, int], Sequence[KeyT]], limit: int) -> list[KeyT]:
        """Return the keys whose turn it is: the next page, or the first one again.

        page: returns at most so many keys behind one, in order; behind None: from the first on.
        """
        found = list(page(self._after, limit))
        if not found and self._after is not None:
            found = list(page(None, limit))
        # Noted before the work is done: an entry that breaks off a pass has had its turn.
        self._after = found[-1] if len(found) >= limit else None
        return found


_TURNS: WeakKeyDictionary[EventStore, dict[str, Turns[Any]]] = WeakKeyDictionary()


def turns_of(store: EventStore, name: str) -> Turns[Any]:
    """Return where this process is in a loop's list."""
    return _TURNS.setdefault(store, {}).setdefault(name, Turns())


def behind(key: Sequence[object] | None, *fields: str) -> Q:
    """Return the condition for rows behind `key` in the order of `fields`, for a `page`."""
    found = Q()
    if key is None:
        return found
    for place in reversed(range(len(fields))):
        later = Q(**{f"{fields[place]}__gt": key[place]})
        equal = Q(**{fields[place]: key[place]})
        found = later | (equal & found) if found else later
    return found


def each_alone(
    entries: Iterable[EntryT],
    act: Callable[[EntryT], int],
    *,
    event: str,
    told: Callable[[EntryT], Mapping[str, str]],
    ends: tuple[type[Exception], ...] = (),
) -> int:
    """Do something with each entry, whatever becomes of the others; return the sum of what it did.

    event: what is logged of an entry that fails, with what `told` says of it. ends: failures that
    are no entry's own, such as that of a cloud they are all asked of: they end the pass.

    Raises: only `ends`, and where the store or the database is away.
    """
    done = away = 0
    for entry in entries:
        try:
            done += act(entry)
            away = 0
        except ends:
            raise
        except Refusal as refusal:
            log.error(event, code=refusal.code, **told(entry))
        except Exception as failure:  # logged: the others get their turn
            away = away + 1 if isinstance(failure, AWAY) else 0
            if away >= AWAY_IN_A_ROW_MAX or (away and _lost()):
                raise
            log.error(event, error=repr(failure), exc_info=failure, **told(entry))
    return done


def _lost() -> bool:
    """Tell if this thread's connection is gone, and with it the lock of the loop it runs."""
    held = connection.connection
    return held is not None and bool(held.closed)
