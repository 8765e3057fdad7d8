"""A host reads the volumes of its own leases and brings their versions, and of no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.domain.ids import HostId, LeaseId
from ledger.eventstore.postgres import PostgresStore
from marketplace.commands import leases
from marketplace.commands.losses import end_for_silence
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.queries.leases import assignments_for
from marketplace.storage.folder import FolderStorage
from metering.agent import wire
from metering.api.agent import _spoken
from tests.access.conftest import Caller
from tests.conftest import SOMEBODY
from tests.marketplace.files.conftest import Upload, manifest_of, name_of
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit
from tests.marketplace.volumes.conftest import Keeping
from tests.marketplace.volumes.conftest import kept as kept
from tests.metering.hosts_of_leases import Host, Linked, host

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.market_routes")]

TRAIN, MODEL = b"print('hello')\n", b"weights"
WRITES = {"name": "data", "path": "data", "writable": True}


@pytest.fixture
def mine(ada: Caller, unit: str, kept: FolderStorage) -> Keeping:
    made = Keeping(ada, kept, unit)
    assert made.create().status_code == 201
    assert made.bring(0, train=TRAIN).status_code == 201
    return made


def leased(mine: Keeping, market: Market, *volumes: dict[str, Any]) -> LeaseRow:
    """Return a lease whose work finds these volumes, running on its host."""
    work = {"kind": "other", "command": ["true"], "volumes": volumes}
    placed = mine.caller.post("/api/v1/bids", body(mine.unit, workload=work))
    assert placed.status_code == 201, placed.content
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()
    LeaseShareRow.objects.update(phase="run")
    return LeaseRow.objects.get(bid_id=placed.json()["id"])


@pytest.fixture
def lease(mine: Keeping, market: Market) -> LeaseRow:
    return leased(mine, market, WRITES)


def host_of(lease: LeaseRow) -> Host:
    share = LeaseShareRow.objects.get(lease_id=lease.lease_id)
    return host(share.host_id, share.owner_id)


@pytest.fixture
def ours(lease: LeaseRow) -> Host:
    return host_of(lease)


def bring(ours: Host, lease: LeaseRow, kept: FolderStorage, **files: bytes) -> str:
    """Send what is missing of a version; return its manifest's name."""
    manifest = manifest_of(**files)
    blobs = [*files.values(), manifest]
    said = [{"sha256": name_of(each), "size": len(each)} for each in blobs]
    answer = ours.ask(lease.lease_id, "volumes/data/missing", {"blobs": said})
    assert answer.status_code == 200, answer.content
    links = {each["sha256"]: each for each in answer.json()["links"]}
    wanted = [each for each in blobs if name_of(each) in links]
    Upload(ours, kept).send(Linked(links), *wanted)
    return name_of(manifest)


def sent(ours: Host, lease: LeaseRow, manifest: str, *, base: int, final: bool = False) -> Any:
    said = {"base": base, "manifest": manifest, "final": final}
    return ours.ask(lease.lease_id, "volumes/data/versions", said)


def test_a_host_is_told_of_the_volume_and_reads_its_newest_version(
    lease: LeaseRow, ours: Host
) -> None:
    [wanted] = assignments_for(HostId(LeaseShareRow.objects.get().host_id))
    spoken = _spoken(wanted)
    shown = ours.ask(lease.lease_id, "volumes/data/read", {"blobs": []})
    asked = ours.ask(lease.lease_id, "volumes/data/read", {"blobs": [name_of(TRAIN)]})

    assert spoken is not None
    assert spoken.volumes == (wire.VolumeMount(name="data", path="data", writable=True),)
    assert shown.status_code == 200, shown.content
    told = wire.VolumeRead.from_json(shown.json())
    assert (told.version, told.manifest) == (1, name_of(manifest_of(train=TRAIN)))
    assert told.room_bytes == 2**30
    assert [each.sha256 for each in told.links] == [told.manifest]
    assert [each["sha256"] for each in asked.json()["links"]] == [name_of(TRAIN)]


def test_what_the_work_left_is_the_next_version_once(
    lease: LeaseRow, ours: Host, mine: Keeping, kept: FolderStorage
) -> None:
    early = sent(ours, lease, name_of(manifest_of(model=MODEL)), base=1)
    manifest = bring(ours, lease, kept, train=TRAIN, model=MODEL)
    first = sent(ours, lease, manifest, base=1)
    again = sent(ours, lease, manifest, base=1)
    final = sent(ours, lease, manifest, base=2, final=True)
    repeated = sent(ours, lease, manifest, base=2, final=True)
    read()
    shown = mine.shown()

    assert early.status_code == 409
    assert first.json() == again.json() == final.json() == repeated.json() == {"version": 2}
    assert (shown["version"], shown["size_bytes"]) == (2, len(TRAIN) + len(MODEL))
    versions = mine.caller.get("/api/v1/volumes/data/versions").json()["data"]
    assert [each["lease_id"] for each in versions] == [str(lease.lease_id), None]
    behind = sent(ours, lease, bring(ours, lease, kept, model=b"other"), base=1)
    assert (behind.status_code, behind.json()["code"]) == (409, "volume-in-use")
    assert behind.json()["code"] in wire.FINAL, "it has said that it is done"


def test_a_version_on_another_base_and_one_that_is_too_large_are_refused(
    lease: LeaseRow, ours: Host, kept: FolderStorage
) -> None:
    behind = sent(ours, lease, bring(ours, lease, kept, model=MODEL), base=0)
    large = {"blobs": [{"sha256": f"{n:064x}", "size": 8 * 2**20} for n in range(129)]}
    full = ours.ask(lease.lease_id, "volumes/data/missing", large)

    assert (behind.status_code, behind.json()["code"]) == (409, "volume-conflict")
    assert (full.status_code, full.json()["code"]) == (413, "volume-full")


def test_a_host_has_nothing_of_the_volumes_of_other_leases(
    lease: LeaseRow, ours: Host, mine: Keeping, kept: FolderStorage
) -> None:
    mine.create("other")
    mine.bring(0, "other", secret=b"secret")
    other = host(uuid4(), uuid4())
    strange = ours.ask(lease.lease_id, "volumes/data/read", {"blobs": [name_of(b"secret")]})
    unasked = ours.ask(lease.lease_id, "volumes/other/read", {"blobs": []})

    assert other.ask(lease.lease_id, "volumes/data/read", {"blobs": []}).status_code == 404
    assert strange.status_code == 404
    assert (unasked.status_code, unasked.json()["code"]) == (409, "volume-not-asked")
    assert unasked.json()["code"] in wire.FINAL
    LeaseShareRow.objects.update(phase="over")
    assert ours.ask(lease.lease_id, "volumes/data/read", {"blobs": []}).status_code == 404


def test_who_only_reads_writes_nothing(mine: Keeping, market: Market, kept: FolderStorage) -> None:
    lease = leased(mine, market, {**WRITES, "writable": False})
    ours = host_of(lease)
    refused = sent(ours, lease, "0" * 64, base=1)

    assert ours.ask(lease.lease_id, "volumes/data/read", {"blobs": []}).status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (409, "volume-not-asked")
    assert mine.bring(1, train=b"new").status_code == 201, "a reader holds up nobody"


def test_what_could_not_be_kept_is_said_on_the_lease_and_others_may_write(
    lease: LeaseRow, ours: Host, mine: Keeping
) -> None:
    waits = mine.bring(1, train=b"new")
    for final in (False, True):
        said = {"reason": "no room", "final": final}
        told = ours.ask(lease.lease_id, "volumes/data/failed", said)
        assert told.status_code == 200, told.content
    outputs = leases.outputs_failed(
        PostgresStore(),
        lease_id=LeaseId(lease.lease_id),
        host_id=HostId(LeaseShareRow.objects.get().host_id),
        reason="of the outputs",
        final=True,
        by=SOMEBODY,
        now=timezone.now(),
    )
    read()
    shown = mine.caller.get(f"/api/v1/leases/{lease.lease_id}").json()

    assert (waits.status_code, waits.json()["code"]) == (409, "volume-in-use")
    assert outputs
    failed = {each["volume"]: each["reason"] for each in shown["outputs_failed"]}
    assert failed == {"data": "no room", "": "of the outputs"}
    assert shown["volumes"] == [WRITES]
    assert mine.bring(1, train=b"new").status_code == 201


def test_a_version_may_come_after_the_lease_and_an_hour_later_others_write(
    lease: LeaseRow, ours: Host, mine: Keeping, market: Market, kept: FolderStorage
) -> None:
    store, lease_id = PostgresStore(), LeaseId(lease.lease_id)
    host_id, now = HostId(LeaseShareRow.objects.get().host_id), timezone.now()
    leases.lease_started(store, lease_id=lease_id, host_id=host_id, by=SOMEBODY, now=now)
    leases.close_lease(store, lease_id=lease_id, by=SOMEBODY, now=now)
    leases.lease_stopped(
        store, lease_id=lease_id, host_id=host_id, exit_code=0, by=SOMEBODY, now=now
    )
    leases.advance_lease(
        store, lease_id=lease_id, start_grace=timedelta(minutes=10), by=SOMEBODY, now=now
    )
    read()
    early = mine.bring(1, train=b"new")
    after = sent(ours, lease, bring(ours, lease, kept, model=MODEL), base=1, final=True)
    LeaseRow.objects.update(closed_at=now - timedelta(hours=25))
    late = sent(ours, lease, "0" * 64, base=1)

    assert (early.status_code, early.json()["code"]) == (409, "volume-in-use")
    assert after.json() == {"version": 2}
    assert mine.bring(2, train=b"new").status_code == 201
    assert (late.status_code, late.json()["code"]) == (409, "outputs-too-late")


def test_of_a_host_that_fell_silent_nobody_waits_for_a_version(
    lease: LeaseRow, ours: Host, mine: Keeping, market: Market, kept: FolderStorage
) -> None:
    """Once another writes, what the old host still has is refused; until then it is kept."""
    store, lease_id = PostgresStore(), LeaseId(lease.lease_id)
    host_id, now = HostId(LeaseShareRow.objects.get().host_id), lease.starts_at
    grace = timedelta(minutes=10)
    leases.advance_lease(store, lease_id=lease_id, start_grace=grace, by=SOMEBODY, now=now)
    leases.lease_started(store, lease_id=lease_id, host_id=host_id, by=SOMEBODY, now=now)
    end_for_silence(store, lease_id=lease_id, host_id=host_id, heard_at=now, by=SOMEBODY, now=now)
    later = now + timedelta(minutes=1)
    leases.advance_lease(store, lease_id=lease_id, start_grace=grace, by=SOMEBODY, now=later)
    read()

    back = sent(ours, lease, bring(ours, lease, kept, model=MODEL), base=1)
    other = mine.bring(2, train=b"new")
    unseen = sent(ours, lease, bring(ours, lease, kept, model=b"newer"), base=2)

    assert back.json() == {"version": 2}
    assert other.status_code == 201
    assert (unseen.status_code, unseen.json()["code"]) == (409, "volume-conflict")
