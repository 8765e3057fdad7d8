"""The pages of work with something in them, in a browser: accessible, narrow enough, and used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Page

from config.wiring import build_storage
from ledger.domain.ids import LeaseId
from ledger.vault import default_vault
from listings.models import HostRow
from marketplace import secrets
from marketplace.commands import leases
from marketplace.models import LeaseRow, LeaseShareRow
from marketplace.models.bids import BidRow
from marketplace.models.folders import FolderRow
from marketplace.models.volumes import VolumeRow
from marketplace.storage.port import BlobKey
from metering.ingest import tunnels
from metering.ingest.tunnels import Agent, Holder
from tests.marketplace.files.conftest import manifest_of, name_of
from tests.pages.bid_form import form
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served, violations
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]

LONG = "out/checkpoints/step-000030-of-a-run-with-a-name-that-does-not-fit-a-phone.safetensors"
WEIGHTS = bytes(range(256)) * 40


@dataclass(frozen=True, slots=True)
class Made:
    """A market in which work runs, and other work failed and left files."""

    world: World
    running: UUID
    failed: UUID
    folder: UUID


@pytest.fixture
def made(committed_store: None) -> Made:
    world = World()
    world.found()
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    secrets.set_secret(
        world.store, default_vault(), world.tenant(CONSUMER), "HF_TOKEN", "a value of it",
        user_id=None, by=BY, now=timezone.now(),
    )  # fmt: skip
    for name in ("data", "old-weights"):
        said = {"token": str(uuid4()), "name": name, "size_gib": 2, "days": 30}
        assert consumer.post("/volumes", said).status_code == 302
    world.settle()
    running = _leased(world, form(gpus="1"))
    failed = _leased(world, form(gpus="1", token=str(uuid4())))
    _tell(world, running, failed)
    return Made(world, running, failed, _filled(world, failed))


def _leased(world: World, bid: dict[str, Any]) -> UUID:
    """Bid, and return the lease that comes of it."""
    before = set(LeaseRow.objects.values_list("lease_id", flat=True))
    answer = world.member(CONSUMER, "consumer").post("/bids/new", bid)
    assert answer.status_code == 302, answer.content.decode()
    world.settle()
    (lease_id,) = set(LeaseRow.objects.values_list("lease_id", flat=True)) - before
    return UUID(str(lease_id))


def _tell(world: World, running: UUID, failed: UUID) -> None:
    """Say what a host's agent says: that one work runs and can be reached, and one cannot start."""
    told: dict[str, Any] = {"host_id": world.host_id, "by": BY, "now": timezone.now()}
    leases.lease_started(world.store, lease_id=LeaseId(running), **told)
    why = "The command was not found on this host: python4"
    leases.lease_failed(world.store, lease_id=LeaseId(failed), detail=why, **told)
    world.settle()
    finds = [{"name": "data", "path": "in/set", "writable": False}]
    LeaseRow.objects.filter(lease_id=running).update(volumes=finds)
    BidRow.objects.update(volumes=finds, secrets=["HF_TOKEN"], outputs=["out/", "*.pt"])
    LeaseShareRow.objects.filter(lease_id=running).update(phase="run")
    agent, here = (
        Agent(world.host_id, world.tenant(OWNER), uuid4()),
        Holder(uuid4(), "http://[::1]"),
    )
    tunnels.note_opened(agent, here, "shell", now=timezone.now())


def _filled(world: World, lease_id: UUID) -> UUID:
    """Fill a volume and two folders, of which a lease found one and left the other."""
    kept, now = build_storage(settings.ENV, settings.HOME), timezone.now()
    manifest = manifest_of(**{LONG: WEIGHTS, "model.json": b"{}"})
    for body in (manifest, WEIGHTS, b"{}"):
        kept.write(BlobKey(world.tenant(CONSUMER), name_of(body)), body)
    size: dict[str, Any] = {"files": 2, "size_bytes": len(WEIGHTS) + 2}
    VolumeRow.objects.update(manifest=name_of(manifest), number=1, **size)
    VolumeRow.objects.filter(name="data").update(noticed_at=now)
    gone = {"expired_because": "unpaid", "removed_at": now + timedelta(days=9)}
    VolumeRow.objects.filter(name="old-weights").update(**gone)
    common = {"tenant_id": world.tenant(CONSUMER), "kept_at": now, "manifest": name_of(manifest)}
    found, left = (
        FolderRow.objects.create(folder_id=uuid4(), title=title, **more, **common, **size)
        for title, more in (
            ("train", {}),
            ("", {"lease_id": lease_id, "host_id": world.host_id, "exit_code": 3}),
        )
    )
    said = {"reason": "logs/: no such folder", "final": True, "at": now.isoformat()}
    LeaseRow.objects.filter(lease_id=lease_id).update(
        inputs=found.folder_id, outputs=["out/", "logs/"], outputs_failed={str(world.host_id): said}
    )
    return UUID(str(left.folder_id))


@pytest.fixture
def site(made: Made, tmp_path: Path) -> Iterator[str]:
    """The site of a market that has a domain for the ports of work."""
    with served(tmp_path / "site.log", OFFPEAK_WORK_DOMAIN="work.example") as address:
        yield address


@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_pages_of_work_are_accessible_fit_and_keep_the_policy(
    made: Made, site: str, tmp_path: Path, scheme: str
) -> None:
    bid = LeaseRow.objects.get(lease_id=made.running).bid_id
    visits = {
        f"/leases/{made.running}": "Open port in the browser",
        f"/leases/{made.failed}": "python4",
        f"/bids/{bid}": "HF_TOKEN",
        "/bids/new": "Secrets it is handed",
        "/run": "A folder of this computer",
        "/folders": "train",
        f"/folders/{made.folder}": LONG,
        "/volumes": "old-weights",
        "/volumes/data": LONG,
        "/volumes/old-weights": "Adding funds brings it back",
        "/settings/secrets": "HF_TOKEN",
    }
    wrong: dict[str, list[str]] = {}
    with browsing(scheme=scheme) as (context, page, said):
        enter(context, site, made.world.member(CONSUMER, "consumer").cookies)
        for path, shown in visits.items():
            page.goto(site + path)
            for summary in page.locator("summary").all():
                summary.click()
            found = [] if shown in page.locator("main").inner_text() else [f"no {shown}"]
            if found := [*found, *faults(page, scheme), *said]:
                wrong[path] = found
            said.clear()

    assert wrong == {}


def test_a_file_that_work_left_is_saved_from_its_leases_page(made: Made, site: str) -> None:
    with browsing() as (context, page, said):
        enter(context, site, made.world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/leases/{made.failed}")
        with page.expect_download() as downloading:
            page.get_by_role("link", name=LONG).click()
        saved = downloading.value.path().read_bytes()
        name = downloading.value.suggested_filename

    assert (saved, name) == (WEIGHTS, LONG.rpartition("/")[2])
    assert said == []


def test_an_owner_pauses_a_host_resumes_it_and_sees_its_agents_page(made: Made, site: str) -> None:
    owner = made.world.member(OWNER, "owner")
    host = HostRow.objects.get()
    wrong: list[str] = []
    with browsing() as (context, page, said):
        enter(context, site, owner.cookies)
        page.goto(f"{site}/owner")
        for word in ("Reclaim", "Retire"):
            wrong += _opened(page, f"{word}… {host.title}")
            page.keyboard.press("Escape")
        wrong += _opened(page, f"Pause… {host.title}")
        page.get_by_label("It ends with the notice that was agreed").check()
        page.get_by_role("button", name="Take no new work").click()
        page.wait_for_load_state()
        made.world.settle()
        HostRow.objects.update(at_host="paused")
        page.goto(f"{site}/owner")
        taking = HostRow.objects.get().on_market
        wrong += faults(page, "light", also=f"({WRAPPED})()")
        page.get_by_role("button", name=f"Resume {host.title}").click()
        page.wait_for_load_state()
        made.world.settle()
        resumed = HostRow.objects.get().on_market

        page.goto(f"{site}/owner/hosts/{host.host_id}/agent")
        page.get_by_role("button", name="Make an enrolment code").click()
        page.get_by_role("heading", name="On the host").wait_for()
        wrong += faults(page, "light")
        wrong += said

    assert (taking, resumed) == ("draining", "all")
    assert wrong == []


WRAPPED = """() => [...document.querySelectorAll("td .small")].filter((each) =>
  each.getClientRects().length > 1 || each.offsetHeight > 40).map((each) => each.innerText)"""
"""Buttons whose words break into lines."""


def _opened(page: Page, button: str) -> list[str]:
    """Open a dialog; return what is wrong with it, wide and on a phone."""
    page.get_by_role("button", name=button).click()
    page.get_by_role("dialog").wait_for()
    return [f"{button}: {each}" for each in violations(page)]
