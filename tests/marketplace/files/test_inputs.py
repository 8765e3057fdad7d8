"""What a bid brings: a folder of its organisation, which stays as long as its work needs it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from ledger.domain.ids import HostId
from ledger.eventstore.postgres import PostgresStore
from listings.models import HostRow
from marketplace import folders
from marketplace.commands import bids
from marketplace.domain.files.outputs import OUTPUTS_MAX, OutputsUnreadable, need_outputs
from marketplace.models.bids import BidRow
from marketplace.models.folders import BlobRow
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.queries.leases import assignments_for
from marketplace.queries.on_hosts import leases_to_begin_on
from marketplace.storage.folder import FolderStorage
from metering.api.agent import _spoken
from tests.access.conftest import Caller
from tests.marketplace.files.conftest import Upload
from tests.marketplace.support.market import OWNER, Market
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]

DAY = timedelta(hours=24, minutes=1)


@pytest.fixture
def folder(ada: Caller, kept: FolderStorage) -> str:
    return Upload(ada, kept).folder(train=b"print('hello')\n")


def bid(ada: Caller, unit: str, inputs: str, outputs: tuple[str, ...] = ()) -> Any:
    work = {"kind": "other", "command": ["true"], "inputs": inputs, "outputs": outputs}
    return ada.post("/api/v1/bids", body(unit, workload=work))


def lease_of(market: Market) -> LeaseRow:
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()
    return LeaseRow.objects.get()


def test_inputs_and_outputs_go_with_the_bid_to_its_lease_and_its_host(
    ada: Caller, unit: str, market: Market, folder: str
) -> None:
    placed = bid(ada, unit, folder, ("out/", "*.pt"))
    assert placed.status_code == 201, placed.content
    read()
    shown = ada.get(f"/api/v1/bids/{placed.json()['id']}").json()["workload"]
    lease = lease_of(market)
    market_lease = ada.get(f"/api/v1/leases/{lease.lease_id}").json()

    assert (shown["inputs"], shown["outputs"]) == (folder, ["out/", "*.pt"])
    assert (market_lease["inputs"], market_lease["outputs"]) == (folder, ["out/", "*.pt"])
    LeaseShareRow.objects.update(phase="run")
    [wanted] = assignments_for(HostId(LeaseShareRow.objects.get().host_id))
    spoken = _spoken(wanted)
    assert spoken is not None
    assert (spoken.inputs, spoken.outputs) == (UUID(folder), ("out/", "*.pt"))


def test_the_level_that_a_bid_asks_for_goes_to_its_host(
    ada: Caller, unit: str, market: Market
) -> None:
    assert ada.post("/api/v1/bids", body(unit)).status_code == 201
    lease_of(market)
    LeaseShareRow.objects.update(phase="run")
    host_id = HostId(LeaseShareRow.objects.get().host_id)
    [any_level] = assignments_for(host_id)
    BidRow.objects.update(query="gpu=H100 sandbox>=full")
    [wanted] = assignments_for(host_id)

    assert (any_level.sandbox, wanted.sandbox) == ("", "full")
    spoken, to_one_of_before = _spoken(wanted, True), _spoken(wanted)
    assert spoken is not None and spoken.sandbox == "full"
    assert to_one_of_before is not None and "sandbox" not in to_one_of_before.to_json()


def test_work_that_has_not_begun_is_handed_out_only_on_the_network_that_its_bid_asks_for(
    ada: Caller, unit: str, market: Market
) -> None:
    assert ada.post("/api/v1/bids", body(unit)).status_code == 201
    lease_of(market)
    LeaseShareRow.objects.update(phase="run")
    host_id = HostId(LeaseShareRow.objects.get().host_id)
    BidRow.objects.update(query="gpu=H100 network=none")
    HostRow.objects.filter(host_id=host_id).delete()
    HostRow.objects.create(
        host_id=host_id, tenant_id=OWNER, title="a", market="main", region="eu", labels=[],
        source="local", state="known", gpus=[], gpu_count=0, registered_at=market.now, version=1,
        abilities=["network-open"],
    )  # fmt: skip

    assert assignments_for(host_id) == []
    assert leases_to_begin_on(host_id, until=market.now + 30 * DAY) != []
    assert leases_to_begin_on(host_id, until=market.now - 30 * DAY) == []

    LeaseRow.objects.update(state="active")  # it began while the host gave it
    assert len(assignments_for(host_id)) == 1
    assert leases_to_begin_on(host_id, until=market.now + 30 * DAY) == []

    LeaseRow.objects.update(state="starting")
    HostRow.objects.update(abilities=["network-none"])
    assert len(assignments_for(host_id)) == 1


def test_an_agent_of_before_is_told_nothing_that_it_does_not_know(
    ada: Caller, unit: str, market: Market
) -> None:
    assert ada.post("/api/v1/bids", body(unit)).status_code == 201
    lease_of(market)
    LeaseShareRow.objects.update(phase="run")
    [wanted] = assignments_for(HostId(LeaseShareRow.objects.get().host_id))
    spoken = _spoken(wanted)
    assert spoken is not None

    assert not {"inputs", "outputs"} & spoken.to_json().keys()


def test_a_folder_that_is_not_kept_or_of_others_is_refused(
    ada: Caller, bob: Caller, unit: str, market: Market, folder: str, kept: FolderStorage
) -> None:
    theirs = Upload(bob, kept).folder(data=b"1,2,3\n")
    gone = Upload(ada, kept).folder(old=b"4,5,6\n")
    assert ada.delete(f"/api/v1/folders/{gone}").status_code == 200

    for unknown in (theirs, gone, str(uuid4())):
        refused = bid(ada, unit, unknown)
        assert (refused.status_code, refused.json()["code"]) == (422, "inputs-unknown")
    read()
    assert not BidRow.objects.exists()


def test_a_folder_stays_while_a_bid_waits_for_it_and_while_its_lease_lives(
    ada: Caller, unit: str, market: Market, folder: str, kept: FolderStorage
) -> None:
    placed = bid(ada, unit, folder).json()["id"]
    read()

    waiting = ada.delete(f"/api/v1/folders/{folder}")
    lease = lease_of(market)
    running = ada.delete(f"/api/v1/folders/{folder}")
    folders.forget_unused(kept, now=timezone.now() + DAY)

    assert (waiting.status_code, waiting.json()["code"]) == (409, "folder-in-use")
    assert waiting.json()["details"]["bids"] == [placed]
    assert running.status_code == 409
    assert running.json()["details"]["leases"] == [str(lease.lease_id)]
    assert BlobRow.objects.count() == 2, "the sweep leaves what is used"
    assert ada.delete(f"/api/v1/leases/{lease.lease_id}").status_code == 200
    read()
    assert ada.delete(f"/api/v1/folders/{folder}").status_code == 200


def test_a_bid_that_was_just_filled_still_holds_its_folder(
    ada: Caller, unit: str, market: Market, folder: str
) -> None:
    """Bids and leases are read models of their own, of which one may be ahead."""
    placed = bid(ada, unit, folder).json()["id"]
    lease_of(market)
    LeaseRow.objects.all().delete()

    refused = ada.delete(f"/api/v1/folders/{folder}")

    assert refused.json()["details"]["bids"] == [placed]


@pytest.mark.parametrize("fits", ["out", "out/", "*.pt", "runs/*/best.pt", "**/*.log", ".hidden"])
def test_patterns_inside_the_folder_are_outputs(fits: str) -> None:
    need_outputs([fits])


@pytest.mark.parametrize(
    "leads_out",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "out/../../x",
        "out//x",
        "./out",
        "a\\b",
        "a\0b",
        "x" * 257,
    ],
)
def test_patterns_that_lead_out_are_refused(leads_out: str) -> None:
    with pytest.raises(OutputsUnreadable):
        need_outputs([leads_out])


def test_more_patterns_than_a_bid_may_have_are_refused() -> None:
    with pytest.raises(OutputsUnreadable):
        need_outputs([f"{number}.pt" for number in range(OUTPUTS_MAX + 1)])


def test_bad_inputs_and_outputs_are_refused_by_name(ada: Caller, unit: str) -> None:
    for work in (
        {"kind": "other", "inputs": "not-an-id"},
        {"kind": "other", "outputs": "out/"},
        {"kind": "other", "outputs": ["../secrets"]},
        {"kind": "other", "outputs": [""]},
    ):
        assert ada.post("/api/v1/bids", body(unit, workload=work)).status_code == 422


def test_a_folder_that_is_removed_before_its_bid_is_seen_stays_for_its_work(
    ada: Caller, unit: str, market: Market, folder: str, kept: FolderStorage
) -> None:
    """Who removes it looks at read models, which do not know of the bid yet."""
    assert bid(ada, unit, folder).status_code == 201
    assert ada.delete(f"/api/v1/folders/{folder}").status_code == 200
    read()

    store, later = PostgresStore(), timezone.now() + DAY
    assert folders.let_go_removed(store, now=later) == 0
    folders.forget_unused(kept, now=later)
    lease = lease_of(market)
    assert folders.let_go_removed(store, now=later) == 0, "nor while the lease lives"
    name = folders.manifest_for_work(store, ada.tenant_id, UUID(folder))
    links = folders.links_to(kept, ada.tenant_id, UUID(folder), [name])
    assert (list(links), BlobRow.objects.count()) == ([name], 2)

    assert ada.delete(f"/api/v1/leases/{lease.lease_id}").status_code == 200
    read()
    assert folders.let_go_removed(store, now=later) == 1
    assert folders.forget_unused(kept, now=later) == 2


@pytest.mark.parametrize("what", ["folder", "secret"])
def test_what_is_removed_while_a_bid_is_placed_refuses_the_bid(
    ada: Caller, unit: str, folder: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It was there when the bid was looked at, and is not when the bid is written."""
    assert ada.ask("PUT", "/api/v1/secrets/KEY", {"value": "x"}).status_code == 200
    path = f"/api/v1/folders/{folder}" if what == "folder" else "/api/v1/secrets/KEY"
    name = "need_inputs" if what == "folder" else "need_kept"
    ordinary = getattr(bids, name)
    removed: list[int] = []

    def late(*seen: Any, **about: Any) -> None:
        ordinary(*seen, **about)
        if not removed:
            removed.append(ada.delete(path).status_code)

    monkeypatch.setattr(bids, name, late)
    work = {"kind": "other", "command": ["true"], "inputs": folder, "secrets": ["KEY"]}
    refused = ada.post("/api/v1/bids", body(unit, workload=work))

    code = "inputs-unknown" if what == "folder" else "secret-missing"
    assert (removed, refused.json()["code"]) == ([200], code), refused.content
    read()
    assert not BidRow.objects.exists()
