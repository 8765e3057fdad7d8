"""Versions of a volume follow one another, one bid writes at a time, and nothing ends unsaid."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import AccountId, BidId, LeaseId, SubscriberId, TenantId
from ledger.domain.refusal import Refusal
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.files.manifest import PathUnsafe
from marketplace.domain.volumes import expiry, keeping, volume, writing
from marketplace.domain.volumes.events import VolumeEvent, VolumeExpired, VolumeExpiryNoticed
from marketplace.domain.volumes.terms import (
    GIB,
    LIFE_MAX,
    LIFE_MIN,
    VolumeNameUnfit,
    VolumesOnOneHost,
    VolumesUnclear,
    VolumeTimeOutOfBounds,
    need_mounts,
    read_mounts,
)
from marketplace.domain.volumes.volume import VERSIONS_KEPT, Volume, VolumeConflict

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
ID, TENANT = UUID(int=1), TenantId(UUID(int=2))
ONE, TWO, THREE = BidId(UUID(int=11)), BidId(UUID(int=12)), BidId(UUID(int=13))


@dataclass
class Story:
    """A volume, event by event."""

    kept: Volume | None = None
    events: list[VolumeEvent] = field(default_factory=list)

    def told(self, events: object) -> list[VolumeEvent]:
        assert isinstance(events, list)
        for event in events:
            self.kept = Volume.evolve(self.kept, event)
            self.events.append(event)
        return events

    @property
    def volume(self) -> Volume:
        assert self.kept is not None
        return self.kept

    def create(self, *, gib: int = 1, life: timedelta = timedelta(days=30)) -> None:
        self.told(
            keeping.create(
                self.kept,
                volume_id=ID,
                tenant_id=TENANT,
                subscriber_id=SubscriberId(UUID(int=3)),
                account_id=AccountId(UUID(int=4)),
                cost_centre="CC-7",
                name="data",
                quota_bytes=gib * GIB,
                nanos_per_gib_month=50_000_000,
                currency="USD",
                expires_at=NOW + life,
                user_id=None,
                now=NOW,
            )
        )

    def keep(self, manifest: str, *, base: int, size: int = 7, bid: BidId | None = None) -> int:
        lease = None if bid is None else LeaseId(UUID(int=bid.int + 100))
        self.told(
            writing.keep_version(
                self.kept,
                base=base,
                manifest=manifest,
                files=1,
                size_bytes=size,
                bid_id=bid,
                lease_id=lease,
                now=NOW,
            )
        )
        return self.volume.number

    def claim(self, bid: BidId, *, continues: BidId | None = None, over: object = ()) -> None:
        assert isinstance(over, tuple)
        self.told(
            writing.claim(
                self.kept, name="data", bid_id=bid, continues=continues, over=over, now=NOW
            )
        )


@pytest.fixture
def story() -> Story:
    made = Story()
    made.create()
    return made


def test_the_same_version_on_the_same_base_is_the_same_and_another_is_refused(
    story: Story,
) -> None:
    assert story.keep("a" * 64, base=0) == 1
    assert story.keep("a" * 64, base=0) == 1, "an answer was lost"
    assert story.keep("a" * 64, base=1) == 1, "nothing changed"
    assert story.keep("b" * 64, base=1) == 2
    with pytest.raises(volume.VolumeConflict):
        story.keep("c" * 64, base=1)
    with pytest.raises(volume.VolumeFull):
        story.keep("c" * 64, base=2, size=GIB + 1)
    assert story.volume.number == 2


def test_one_bid_writes_at_a_time_and_nobody_beside_it(story: Story) -> None:
    story.claim(ONE)
    with pytest.raises(volume.VolumeInUse) as told:
        story.claim(TWO)
    assert told.value.details["bids"] == [str(ONE)]
    with pytest.raises(volume.VolumeInUse):
        story.keep("a" * 64, base=0)
    with pytest.raises(volume.VolumeInUse):
        story.keep("a" * 64, base=0, bid=TWO)
    with pytest.raises(volume.VolumeInUse):
        story.told(keeping.remove(story.kept, over=(), because="consumer", now=NOW))
    assert story.keep("a" * 64, base=0, bid=ONE) == 1
    story.told(writing.release(story.kept, bid_id=ONE, now=NOW))
    assert story.keep("a" * 64, base=0, bid=ONE) == 1, "its last message came twice"
    story.claim(TWO)
    assert story.keep("b" * 64, base=1, bid=TWO) == 2


def test_a_bid_that_is_over_holds_up_no_other(story: Story) -> None:
    story.claim(ONE)
    story.claim(TWO, over=(ONE,))
    assert story.keep("a" * 64, base=0, bid=TWO) == 1
    with pytest.raises(volume.VolumeInUse):
        story.keep("b" * 64, base=1, bid=ONE)


def test_a_bid_that_continues_another_leaves_it_its_last_version(story: Story) -> None:
    story.claim(ONE)
    story.claim(TWO, continues=ONE)
    assert story.keep("a" * 64, base=0, bid=ONE) == 1
    story.told(writing.release(story.kept, bid_id=ONE, now=NOW))
    assert story.volume.writer is not None
    assert (story.volume.writer.bid_id, story.volume.writer.before) == (TWO, None)
    with pytest.raises(volume.VolumeInUse):
        story.keep("b" * 64, base=1, bid=ONE)
    assert story.keep("b" * 64, base=1, bid=TWO) == 2


def test_a_bid_to_which_work_was_to_move_in_vain_gives_the_volume_back(story: Story) -> None:
    story.claim(ONE)
    story.claim(TWO, continues=ONE)
    with pytest.raises(volume.VolumeInUse) as told:
        story.claim(THREE, over=(TWO,))
    assert told.value.details["bids"] == [str(ONE)], "its work still runs"

    story.told(writing.release(story.kept, bid_id=TWO, now=NOW))

    assert story.volume.writer is not None
    assert (story.volume.writer.bid_id, story.volume.writer.before) == (ONE, None)
    assert story.keep("a" * 64, base=0, bid=ONE) == 1


def test_what_follows_such_a_bid_awaits_the_work_before_it(story: Story) -> None:
    story.claim(ONE)
    story.claim(TWO, continues=ONE)

    story.claim(THREE, continues=TWO, over=(TWO,))

    assert story.keep("a" * 64, base=0, bid=ONE) == 1
    assert story.volume.writer is not None
    assert (story.volume.writer.bid_id, story.volume.writer.before) == (THREE, ONE)


def test_what_is_not_paid_can_be_read_and_then_expires_and_comes_back_when_it_is_paid(
    story: Story,
) -> None:
    story.told(expiry.unpaid(story.kept, now=NOW))
    assert story.told(expiry.unpaid(story.kept, now=NOW + timedelta(days=1))) == []
    later = NOW + expiry.UNPAID_READ_ONLY
    assert not story.volume.is_read_only(later - timedelta(seconds=1))
    with pytest.raises(volume.VolumeReadOnly):
        writing.claim(story.kept, name="data", bid_id=ONE, continues=None, over=(), now=later)
    assert expiry.tick(story.kept, now=later) == []
    [over] = story.told(expiry.tick(story.kept, now=NOW + expiry.UNPAID_EXPIRES))
    assert isinstance(over, VolumeExpired)
    assert over.because == "unpaid"
    with pytest.raises(volume.VolumeOver):
        volume.need_readable(story.kept, name="data")
    story.told(expiry.paid(story.kept, now=NOW + expiry.UNPAID_EXPIRES))
    assert volume.need_readable(story.kept, name="data").unpaid is None


def test_a_size_is_not_below_what_is_kept_and_a_time_not_shorter(story: Story) -> None:
    story.told(keeping.resize(story.kept, quota_bytes=4 * GIB, now=NOW))
    story.keep("a" * 64, base=0, size=3 * GIB)
    with pytest.raises(volume.VolumeTooSmall):
        keeping.resize(story.kept, quota_bytes=2 * GIB, now=NOW)

    def until(life: timedelta) -> object:
        return keeping.extend(story.kept, expires_at=NOW + life, nanos_per_gib_month=1, now=NOW)

    with pytest.raises(volume.VolumeEndsSooner):
        until(timedelta(days=29))
    for life in (LIFE_MIN - timedelta(seconds=1), LIFE_MAX + timedelta(seconds=1)):
        with pytest.raises(VolumeTimeOutOfBounds):
            until(life)
    story.told(until(timedelta(days=60)))
    assert story.volume.nanos_per_gib_month == 1


looks = st.lists(st.integers(0, 90 * 24), min_size=1, max_size=40)


@given(looks=looks, life=st.integers(8, 60))
def test_a_volume_never_expires_before_a_notice_of_seven_days(looks: list[int], life: int) -> None:
    story = Story()
    story.create(life=timedelta(days=life))
    for hours in sorted(looks):
        now = NOW + timedelta(hours=hours)
        story.told(expiry.tick(story.kept, now=now))
        if expiry.is_due_to_go(story.kept, now=now):
            story.told(keeping.remove(story.kept, over=(), because="time", now=now))
            break
    noticed = [each for each in story.events if isinstance(each, VolumeExpiryNoticed)]
    expired = [each for each in story.events if isinstance(each, VolumeExpired)]
    for over in expired:
        assert noticed
        assert over.at >= noticed[-1].at + expiry.NOTICE
        assert over.at >= NOW + timedelta(days=life)
        if story.volume.removed_at is not None:
            assert story.volume.removed_at >= over.at + expiry.GRACE


writes = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("abcd"), st.sampled_from((None, ONE, TWO))),
    max_size=40,
)


@settings(max_examples=200)
@given(writes=writes)
def test_versions_count_up_by_one_and_the_last_of_each_lease_are_kept(
    writes: list[tuple[int, str, BidId | None]],
) -> None:
    story = Story()
    story.create()
    expected: list[tuple[int, BidId | None]] = []
    found = 0
    for base, letter, bid in writes:
        before = story.volume.number
        for each in (ONE, TWO):
            story.told(writing.release(story.kept, bid_id=each, now=NOW))
        if bid is not None:
            story.claim(bid)
        goes_on = bool(expected) and bid is not None and expected[-1][1] == bid
        since = found if goes_on else before
        try:
            number = story.keep(letter * 64, base=base, bid=bid)
        except VolumeConflict:
            assert story.volume.number == before
            assert not since <= base <= before
            continue
        assert story.volume.newest is not None
        assert story.volume.newest.manifest == letter * 64
        if number == before:
            continue
        assert number == before + 1
        assert since <= base <= before
        found = since
        expected = [*(expected[:-1] if goes_on else expected), (number, bid)]
    kept = [each.number for each in story.volume.versions]
    assert kept == [number for number, _ in expected[-VERSIONS_KEPT:]]


def test_checkpoints_of_a_long_run_leave_what_was_there_before_it(story: Story) -> None:
    for number, letter in enumerate("abc"):
        story.keep(letter * 64, base=number)
    story.claim(ONE)

    for number in range(3, 20):
        story.keep(f"{number:064}", base=number, bid=ONE)

    assert [each.number for each in story.volume.versions] == [2, 3, 20]


def test_an_agent_that_lost_its_note_of_a_checkpoint_goes_on(story: Story) -> None:
    """It is killed between the answer of the market and its own note of it."""
    story.keep("a" * 64, base=0)
    story.claim(ONE)
    assert story.keep("b" * 64, base=1, bid=ONE) == 2

    assert story.keep("b" * 64, base=1, bid=ONE) == 2
    assert story.keep("c" * 64, base=1, bid=ONE) == 3
    assert story.keep("d" * 64, base=1, bid=ONE) == 4
    with pytest.raises(volume.VolumeConflict):
        story.keep("e" * 64, base=0, bid=ONE)
    story.told(writing.release(story.kept, bid_id=ONE, now=NOW))
    story.claim(TWO)
    with pytest.raises(volume.VolumeConflict):
        story.keep("e" * 64, base=1, bid=TWO)


@pytest.mark.parametrize(
    ("mounts", "refused"),
    [
        ([("data", "../out", True)], PathUnsafe),
        ([("data", "/data", True)], PathUnsafe),
        ([("data", "a/../b", True)], PathUnsafe),
        ([("data", "", True)], PathUnsafe),
        ([("Data", "data", True)], VolumeNameUnfit),
        ([("data", "a", True), ("data", "b", False)], VolumesUnclear),
        ([("data", "a", True), ("more", "a", False)], VolumesUnclear),
        ([("data", "a/b", True), ("more", "a", False)], VolumesUnclear),
        ([(f"v{n}", f"v{n}", False) for n in range(9)], VolumesUnclear),
    ],
)
def test_work_finds_volumes_side_by_side_beneath_where_it_starts(
    mounts: list[tuple[str, str, bool]], refused: type[Refusal]
) -> None:
    with pytest.raises(refused):
        need_mounts([VolumeMount(*each) for each in mounts])


def test_volumes_are_read_as_people_write_them() -> None:
    assert read_mounts("data:ro  weights:in/set more:a:ro") == (
        VolumeMount("data", "volumes/data", writable=False),
        VolumeMount("weights", "in/set", writable=True),
        VolumeMount("more", "a", writable=False),
    )
    assert read_mounts("") == ()
    for wrong in ("data:", "data:a:b", "../x", "data data:b", ":a", "data:/abs"):
        with pytest.raises(Refusal):
            read_mounts(wrong)


def test_who_writes_runs_on_one_host() -> None:
    need_mounts([VolumeMount("data", "data", writable=False)], one_host=False)
    with pytest.raises(VolumesOnOneHost):
        need_mounts([VolumeMount("data", "data", writable=True)], one_host=False)
