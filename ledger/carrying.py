"""Carry long accounts forward, so that folds of them begin there (decision 116).

A step reads a bounded number of events from where the account was carried forward to before; so an
account of any length comes to its present in small steps, and each leaves a state to go on from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

from ledger.domain.accounts import Account
from ledger.domain.carried import AccountCarried
from ledger.domain.carrying import CarriedForward, carry, carry_forward
from ledger.domain.ids import AccountId
from ledger.domain.periods import Period
from ledger.eventstore.folds import CARRIED_FROM, Fold, carried_stream, fold_carried
from ledger.eventstore.port import EventStore, Meta, Recorded, record, stream_name
from ledger.models import AccountRow

EVERY = 2_000
"""Events after which an account is carried forward, also within a month."""
STEPS_MAX = 50
"""Steps of one account in one run; the rest is for the next one."""
ACCOUNTS_AT_ONCE = 500


def carry_accounts_forward(store: EventStore, *, now: datetime) -> int:
    """Carry forward every account that has grown by `EVERY` events, or into another month.

    Returns: how often that was done.
    """
    if not store.finds:
        return 0  # what is older could only be found by reading it
    known = AccountRow.objects.order_by("pk").values_list("pk", flat=True)
    return sum(
        carry_one_forward(store, AccountId(account_id), now=now)
        for account_id in _grown(store, known.iterator(chunk_size=ACCOUNTS_AT_ONCE), now=now)
    )


def _grown(store: EventStore, ids: Iterator[UUID], *, now: datetime) -> Iterator[UUID]:
    while page := list(islice(ids, ACCOUNTS_AT_ONCE)):
        streams = {stream_name(Account, each): each for each in page}
        last = store.read_last([*streams, *map(carried_stream, streams)])
        for stream, account_id in streams.items():
            if _is_due(last.get(stream), last.get(carried_stream(stream)), now=now):
                yield account_id


def _is_due(end: Recorded | None, last: Recorded | None, *, now: datetime) -> bool:
    if end is None or end.version < CARRIED_FROM:
        return False
    if last is None:
        return True
    carried = last.event
    assert isinstance(carried, AccountCarried)
    since = end.version - carried.up_to_version
    return since >= EVERY or (since > 0 and carried.period != str(Period.of(now)))


def carry_one_forward(
    store: EventStore, account_id: AccountId, *, now: datetime, every: int = EVERY
) -> int:
    """Carry one account forward to its present end, or `STEPS_MAX` steps towards it.

    every: events that one step reads at most.
    Returns: how many steps that took.
    """
    for step in range(STEPS_MAX):
        carried = _next(store, account_id, now=now, every=every)
        if carried is None:
            return step
        _note(store, carried)
        if carried.up_to_version % every:
            return step + 1
    return STEPS_MAX


def _next(
    store: EventStore, account_id: AccountId, *, now: datetime, every: int
) -> AccountCarried | None:
    """Return what the account comes to at the next multiple of `every`, or at its end."""
    stream = stream_name(Account, account_id)
    last = store.read_last([carried_stream(stream)]).get(carried_stream(stream))
    before = last.event if last is not None else None
    assert before is None or isinstance(before, AccountCarried)
    if before is None:
        folded = Fold().after(Account, islice(store.read_stream(stream), every))
    else:
        most = every - before.up_to_version % every
        found = fold_carried(store, Account, stream, before, most=most)
        assert found is not None, "what was recorded stays"
        folded = found
    if folded.last is None or (before and folded.version == before.up_to_version):
        return None
    return carry(folded.state, up_to_version=folded.version, event_id=folded.last, now=now)


def _note(store: EventStore, carried: AccountCarried) -> None:
    def decide(before: CarriedForward | None) -> Sequence[AccountCarried]:
        return carry_forward(before, carried)

    by = Meta(actor="loop:carried-accounts")
    record(store, CarriedForward, carried.account_id, decide, by=by)


def carried_wrongly(store: EventStore) -> list[str]:
    """Return the accounts whose last step is not what their events come to; for `doctor`.

    Each is folded again from the step before it.
    """
    wrong: list[str] = []
    for account_id in AccountRow.objects.order_by("pk").values_list("pk", flat=True).iterator():
        stream = stream_name(Account, account_id)
        last = store.read_last([carried_stream(stream)]).get(carried_stream(stream))
        if last is not None and not _follows(store, stream, last):
            wrong.append(f"account {account_id}: carried forward otherwise than its events say")
    return wrong


def _follows(store: EventStore, stream: str, last: Recorded) -> bool:
    carried = last.event
    assert isinstance(carried, AccountCarried)
    earlier = list(store.read_stream(carried_stream(stream), after_version=last.version - 2))
    before = earlier[0].event if last.version > 1 else None
    if before is None:
        events = islice(store.read_stream(stream), carried.up_to_version)
        folded: Fold | None = Fold().after(Account, events)
    else:
        assert isinstance(before, AccountCarried)
        most = carried.up_to_version - before.up_to_version
        folded = fold_carried(store, Account, stream, before, most=most)
    if folded is None or folded.last is None:
        return False
    again = carry(folded.state, up_to_version=folded.version, event_id=folded.last, now=carried.at)
    return again == carried
