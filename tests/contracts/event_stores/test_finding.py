"""Looking for events: the last of a stream, one by its id, an account's by what they name."""

from __future__ import annotations

from uuid import UUID, uuid4

from ledger.domain.event import Event
from ledger.domain.events import FundsAdded, HoldPlaced
from ledger.domain.ids import AccountId, EntryId, HoldId
from ledger.domain.money import Money
from ledger.eventstore.port import NewEvent
from tests.conftest import NOON
from tests.contracts.event_stores.given import Rig, a_stream, notes

ACCOUNT = AccountId(UUID(int=1))


def placed(hold_id: UUID, purpose: str = "") -> HoldPlaced:
    return HoldPlaced(
        account_id=ACCOUNT, hold_id=HoldId(hold_id), money=Money(1), purpose=purpose, at=NOON
    )


def added(entry_id: UUID, reference: str = "") -> FundsAdded:
    return FundsAdded(
        account_id=ACCOUNT,
        entry_id=EntryId(entry_id),
        money=Money(1),
        reference=reference,
        postings=(),
        at=NOON,
    )


def put(rig: Rig, stream: str, *events: Event) -> list[NewEvent]:
    new = [NewEvent(uuid4(), event) for event in events]
    rig.put(stream, new)
    return new


def test_the_last_event_of_each_stream_is_told_and_none_of_an_unknown_one(rig: Rig) -> None:
    one, other, unknown = a_stream(), a_stream(), a_stream()
    first, second = notes(3), notes(1)
    rig.put(one, first)
    rig.put(other, second)

    last = rig.store.read_last([one, unknown, other])

    assert {stream: each.id for stream, each in last.items()} == {
        one: first[-1].id,
        other: second[0].id,
    }
    assert last[one].version == 3


def test_an_event_is_found_by_its_id_in_its_own_stream_only(rig: Rig) -> None:
    stream, other = a_stream(), a_stream()
    events = notes(3)
    rig.put(stream, events)
    rig.put(other, notes(1))

    found = rig.store.find_event(stream, events[1].id)

    assert found is not None
    assert (found.version, found.event) == (2, events[1].event)
    assert rig.store.find_event(other, events[1].id) is None
    assert rig.store.find_event(stream, uuid4()) is None


def test_what_names_a_hold_or_an_entry_is_found_in_order_up_to_a_version(rig: Rig) -> None:
    stream, another = f"account-{uuid4()}", f"account-{uuid4()}"
    name, foreign = uuid4(), uuid4()
    events = [placed(name), added(foreign), added(name), placed(foreign), placed(name)]
    put(rig, stream, *events)
    put(rig, another, placed(name))

    def versions(most: int) -> list[int]:
        found = rig.store.find_named(stream, name, up_to_version=most)
        return [each.version for each in found]

    assert (versions(9), versions(4), versions(0)) == ([1, 3, 5], [1, 3], [])
    assert list(rig.store.find_named(stream, uuid4(), up_to_version=9)) == []


def test_a_text_that_reads_like_an_id_names_nothing(rig: Rig) -> None:
    stream, name = f"account-{uuid4()}", uuid4()
    put(rig, stream, added(uuid4(), f'"entry_id":"{name}'), placed(uuid4(), f'"hold_id":"{name}"'))

    assert list(rig.store.find_named(stream, name, up_to_version=9)) == []


def test_no_more_of_each_stream_is_read_than_was_asked_for(rig: Rig) -> None:
    one, other = a_stream(), a_stream()
    rig.put(one, notes(5))
    rig.put(other, notes(2))

    found = rig.store.read_streams([(one, 1), (other, 0)], first=3)

    assert [each.version for each in found[one]] == [2, 3, 4]
    assert [each.version for each in found[other]] == [1, 2]
