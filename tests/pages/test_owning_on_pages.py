"""An owner lists GPUs, sees what that may earn, changes it, and takes the GPUs back."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain.ids import OfferId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta
from listings.commands import change_offer
from listings.domain.changes import TermsChange
from listings.domain.events import ReclaimStep
from listings.models import HostRow, OfferRow
from marketplace.models import LeaseRow
from tests.pages.bid_form import form as bid_form
from tests.pages.offer_form import form
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, World, id_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def test_an_owner_lists_a_night(world: World, owner: Client) -> None:
    answer = owner.post("/offers/new", form(world))
    world.settle()

    assert answer.status_code == 302
    page = owner.get(answer["Location"]).content.decode()
    assert "$1.95 per GPU-h" in page
    row = OfferRow.objects.get()
    assert (row.gpu_uuids, row.notice_seconds) == (["GPU-0", "GPU-1"], 600)
    assert row.offer_id == id_in(answer["Location"])


def test_the_grid_shows_what_is_listed(world: World, owner: Client) -> None:
    owner.post("/offers/new", form(world))
    world.settle()

    page = owner.get("/offers/new").content.decode()

    assert page.count('class="block offered"') == 2
    assert page.count("Listed $1.95") >= 2


def test_an_owner_lists_gpus_in_shares(world: World, owner: Client) -> None:
    sent = form(world, isolation="mps", shares="4")
    told = owner.post("/offers/preview", sent).content.decode()
    answer = owner.post("/offers/new", sent)
    world.settle()

    assert answer.status_code == 302, answer.content.decode()
    assert "64.00 GPU-h" in told, "two GPUs in four shares each, for eight hours"
    page = owner.get(answer["Location"]).content.decode()
    row = OfferRow.objects.get()
    assert (row.gpu_count, row.isolation) == (8, "mps")
    assert "GPU-0/mps-1of4/25pct" in page
    assert "25 %" in page
    grid = owner.get("/offers/new").content.decode()
    assert grid.count("GPU 0, mps ") == 4
    assert grid.count("In shares") >= 2


def test_a_repeated_window_keeps_the_wall_time_of_the_owners_zone(
    world: World, owner: Client
) -> None:
    owner.cookies["zone"] = "America/New_York"
    starts = timezone.now() + timedelta(days=2)
    sent = form(
        world,
        starts_at=f"{starts:%Y-%m-%d}T22:00",
        ends_at=f"{starts + timedelta(days=1):%Y-%m-%d}T06:00",
        repeat="daily",
    )

    owner.post("/offers/new", sent)
    world.settle()

    weekly = OfferRow.objects.get().weekly
    assert weekly is not None
    assert weekly["zone"] == "America/New_York"
    assert (weekly["since"], weekly["until"]) == ("22:00:00", "06:00:00")
    assert weekly["days"] == [0, 1, 2, 3, 4, 5, 6]


def test_a_wall_time_that_does_not_exist_is_refused(world: World, owner: Client) -> None:
    owner.cookies["zone"] = "Europe/London"

    answer = owner.post("/offers/new", form(world, starts_at="2027-03-28T01:30"))

    assert answer.status_code == 422
    assert "may be ambiguous or it may not exist" in answer.content.decode()
    assert not OfferRow.objects.exists()


def test_the_preview_tells_a_range_after_the_fee(world: World, owner: Client) -> None:
    told = owner.post("/offers/preview", form(world)).content.decode()

    assert "16.00 GPU-h" in told
    assert "$29.64" in told, "16 GPU-hours at 1.95, less five per cent"
    assert not OfferRow.objects.exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"floor": "1e3"}, "An amount is a plain decimal number"),
        ({"floor": "-1"}, "An amount must lie between zero"),
        ({"floor": "20000"}, "A floor price lies between 0 and 10,000"),
        ({"ends_at": "2020-01-01T00:00"}, "The window must end after it starts."),
        ({"gpu": []}, "This field is required."),
        ({"gpu": ["GPU-9"]}, "GPU-9 is not one of the available choices"),
        ({"reclaim_fee": "101"}, "less than or equal to 100"),
        ({"lease_min": "100000"}, "The minimum lease lies between"),
        ({"isolation": "mps"}, "Shares need an isolation by MPS or time slices"),
        ({"shares": "4"}, "Shares need an isolation by MPS or time slices"),
        ({"isolation": "timeslice", "shares": "49"}, "less than or equal to 48"),
        ({"workload_kinds": "Mining!"}, "A workload kind is a short lower-case name"),
    ],
)
def test_terms_out_of_bounds_are_refused_in_place(
    world: World, owner: Client, changed: dict[str, Any], says: str
) -> None:
    answer = owner.post("/offers/new", form(world, **changed))
    world.settle()

    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not OfferRow.objects.exists()


def test_a_gpu_is_not_listed_twice_at_one_time(world: World, owner: Client) -> None:
    owner.post("/offers/new", form(world))
    world.settle()

    answer = owner.post("/offers/new", form(world, gpu=["GPU-1"]))
    world.settle()

    assert answer.status_code == 422
    assert b"That GPU is offered already during one of these windows." in answer.content
    assert b"Withdraw the other offer" in answer.content
    assert OfferRow.objects.count() == 1


def test_an_offer_is_paused_repriced_resumed_and_withdrawn(world: World, owner: Client) -> None:
    place = owner.post("/offers/new", form(world))["Location"].split("?")[0]
    world.settle()
    states = []

    for asked in (
        {"do": "pause"},
        {"do": "reprice", "floor": "2.10"},
        {"do": "resume"},
        {"do": "withdraw"},
    ):
        assert owner.post(place, asked).status_code == 302
        world.settle()
        row = OfferRow.objects.get()
        states.append((row.state, row.floor_nanos_per_gpu_hour))

    assert states == [
        ("paused", 1_950_000_000),
        ("paused", 2_100_000_000),
        ("listed", 2_100_000_000),
        ("withdrawn", 2_100_000_000),
    ]
    again = owner.post(place, {"do": "resume"})
    assert again.status_code == 422
    assert b"The offer is withdrawn" in again.content


def as_shown(page: str, card: str) -> dict[str, str]:
    """Return the fields of a card's form with the values that the browser would send."""
    part = page.split(f'aria-labelledby="{card}"')[1].split("</form>")[0]
    fields = re.findall(r"<input[^>]*>", part)
    found = {
        name[1]: unescape(value[1]) if value else ""
        for field in fields
        if (name := re.search(r' name="([^"]*)"', field))
        for value in [re.search(r' value="([^"]*)"', field)]
    }
    return {name: value for name, value in found.items() if name != "csrfmiddlewaretoken"}


def test_an_owner_changes_the_terms_of_an_offer_that_stands(world: World, owner: Client) -> None:
    sent = form(world, grace="90", longer_notice="2", longer_fee="5")
    place = owner.post("/offers/new", sent)["Location"].split("?")[0]
    world.settle()
    shown = as_shown(owner.get(place).content.decode(), "h-change")

    changed = {"notice": "30", "grace": "", "steps": "2h=5; 36h=0.5", "workload_kinds": "render"}
    answer = owner.post(place, shown | changed | {"do": "terms"})
    world.settle()

    assert (shown["notice"], shown["grace"], shown["reclaim_fee"]) == ("10", "90", "10")
    assert (shown["steps"], shown["lease_min"], shown["workload_kinds"]) == ("2h=5", "15", "")
    assert answer.status_code == 302
    row = OfferRow.objects.get()
    assert (row.notice_seconds, row.grace_seconds, row.lease_min_seconds) == (1_800, 90, 900)
    assert [each["fee_ppm"] for each in row.reclaim_steps] == [50_000, 5_000]
    assert row.workload_kinds == ["render"]


def test_what_the_form_shows_changes_nothing_however_fine_it_is(
    world: World, owner: Client
) -> None:
    place = owner.post("/offers/new", form(world))["Location"].split("?")[0]
    world.settle()
    steps = (ReclaimStep(10_000, 123_456), ReclaimStep(172_800, 1))
    change_offer(
        default_store(),
        offer_id=OfferId(id_in(place)),
        terms=TermsChange(
            notice_seconds=601,
            reclaim_fee_ppm=123_457,
            reclaim_steps=steps,
            lease_min_seconds=1_801,
        ),
        by=Meta(actor="test"),
        now=timezone.now(),
    )
    world.settle()
    before = OfferRow.objects.get()

    shown = as_shown(owner.get(place).content.decode(), "h-change")
    answer = owner.post(place, shown | {"do": "terms"})
    world.settle()

    assert answer.status_code == 302, answer.content
    assert shown["steps"] == "10000s=12.3456; 2d=0.0001"
    assert OfferRow.objects.get().version == before.version == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"notice": ""}, "This field is required"),
        ({"notice": "20000"}, "less than or equal to"),
        ({"steps": "two hours"}, "Write notice and percent"),
        ({"steps": "2h=50"}, "Each step of a reclaim"),
        ({"notice": "1", "grace": "61"}, "The grace lies between"),
        ({"lease_min": "600"}, "The minimum lease lies between"),
    ],
)
def test_terms_that_cannot_be_are_refused_and_stay_in_the_form(
    world: World, owner: Client, changed: dict[str, str], words: str
) -> None:
    place = owner.post("/offers/new", form(world))["Location"].split("?")[0]
    world.settle()
    shown = as_shown(owner.get(place).content.decode(), "h-change")

    answer = owner.post(place, shown | changed | {"do": "terms"})

    page = answer.content.decode()
    assert answer.status_code == 422
    assert words in page
    assert as_shown(page, "h-change") == shown | changed
    assert OfferRow.objects.get().version == 1


def test_a_host_is_reclaimed_with_its_effect_shown_before(world: World, owner: Client) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form())
    world.settle()

    before = owner.get("/owner").content.decode()
    answer = owner.post(f"/owner/hosts/{world.host_id}/reclaim")
    world.settle()

    assert "Reclaim aurora-1?" in before
    assert "You pay the consumers" in before
    assert answer.status_code == 302
    lease = LeaseRow.objects.get()
    assert lease.stop_at is not None
    assert OfferRow.objects.get().state == "paused"
    told = consumer.get(f"/leases/{lease.lease_id}").content.decode()
    assert "Owner takes the GPUs back" in told


def test_an_owner_tells_own_use_from_what_is_sold(world: World, owner: Client) -> None:
    """Both are leases on the owner's GPUs; own use is at no price, and looks like a gift."""
    world.list_gpus(0, 1)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form())
    world.settle()

    sold = owner.get("/owner").content.decode()
    LeaseRow.objects.update(tenant_id=world.tenant(OWNER))
    own = owner.get("/owner").content.decode()

    assert "Leases on your GPUs" in sold and "own use" not in sold
    assert own.count("own use") == 1


def test_only_an_owner_reclaims(world: World, owner: Client) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form())
    world.settle()
    lease_id = LeaseRow.objects.get().lease_id

    assert consumer.post(f"/leases/{lease_id}/reclaim").status_code == 403
    assert consumer.post(f"/owner/hosts/{world.host_id}/reclaim").status_code == 403
    stranger = world.member(CONSUMER, "owner")
    assert stranger.post(f"/owner/hosts/{world.host_id}/reclaim").status_code == 404
    assert LeaseRow.objects.get().stop_at is None


def test_an_owner_cannot_end_a_lease_of_the_consumers(world: World) -> None:
    world.list_gpus(0, 1)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form())
    world.settle()
    lease_id = LeaseRow.objects.get().lease_id
    owner = world.member(OWNER, "owner", "consumer")

    answer = owner.post(f"/leases/{lease_id}/end")
    world.settle()

    assert answer.status_code == 403
    assert LeaseRow.objects.get().state != "closed"


def test_the_first_figure_is_how_much_of_the_week_gpus_are_used_without_leases_and_with(
    world: World, owner: Client
) -> None:
    """None of them was listed for long: the week counts as the owner's own, and so as used."""
    world.list_gpus(0, 1)
    HostRow.objects.update(registered_at=timezone.now() - timedelta(days=30))

    page = text(owner.get("/owner").content)

    found = re.search(r"Utilisation, last 7 days ([0-9.]+)% ([0-9.]+)% without leases", page)
    assert found is not None
    assert page.index("Utilisation, last 7 days") < page.index("Leased now")
    assert float(found[1]) == float(found[2]) > 99


def test_a_host_counts_from_when_it_is_known_on(world: World, owner: Client) -> None:
    """Half of its GPUs were on offer in all of its time, and none of them leased."""
    world.list_gpus(0, 1)
    # Both for an hour: from the test's own start on, a busy machine decides what is shown.
    known_at = world.now - timedelta(hours=1)
    HostRow.objects.update(registered_at=known_at)
    OfferRow.objects.update(published_at=known_at)

    page = text(owner.get("/owner").content)

    found = re.search(r"Utilisation, last 7 days ([0-9.]+)% ([0-9.]+)% without leases", page)
    assert found is not None
    assert float(found[1]) == float(found[2]) == 50


def test_utilisation_is_not_known_before_hours_were_listed(owner: Client) -> None:
    page = text(owner.get("/owner").content)

    assert "Utilisation, last 7 days – known once you have listed idle hours" in page
