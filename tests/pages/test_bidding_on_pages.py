"""A consumer asks, sees what that would get, and follows what becomes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from config.site.pages.bids import views
from ledger.domain.ids import LeaseId
from ledger.eventstore import default_store
from listings.commands import withdraw_offer
from marketplace.commands.leases import lease_stopped, take_lease_at_once
from marketplace.models import BidRow, LeaseRow
from marketplace.queries import books
from tests.pages.bid_form import form
from tests.pages.reading import html, text
from tests.pages.world import BY, CONSUMER, OWNER, World, id_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def consumer(world: World) -> Client:
    """Return a consumer's browser, in a market where two GPUs are listed at 2.00."""
    world.list_gpus(0, 1)
    return world.member(CONSUMER, "consumer")


def test_the_form_knows_what_the_market_has(world: World, consumer: Client) -> None:
    page = consumer.get("/bids/new?gpu=H100-80GB").content.decode()

    assert '<option value="H100-80GB" selected>' in page
    assert 'value="2.00"' in page, "the lowest floor is what the form starts from"


def test_the_estimate_is_what_the_engine_would_do(world: World, consumer: Client) -> None:
    told = consumer.post("/bids/estimate", form()).content.decode()

    assert "You would get it now" in told
    assert "$8.00" in told, "2 GPUs for 2 hours at the floor of 2.00"
    assert "$10.00" in told, "the most it can cost is set aside"
    assert not BidRow.objects.exists()


def test_the_estimate_of_too_low_a_bid_says_what_would_do(world: World, consumer: Client) -> None:
    told = consumer.post("/bids/estimate", form(limit="1.50")).content.decode()

    assert "It would wait" in told
    assert "The floor price is above the limit price" in told
    assert "At $2.00 per GPU-hour it would fit now" in told


def test_a_bid_becomes_a_lease_and_its_page_says_so(world: World, consumer: Client) -> None:
    answer = consumer.post("/bids/new", form())
    world.settle()
    page = consumer.get(answer["Location"]).content.decode()

    assert answer.status_code == 302
    assert "Matched" in page
    lease = LeaseRow.objects.get()
    assert f"/leases/{lease.lease_id}" in page
    assert (lease.gpus, lease.price_nanos_per_gpu_hour) == (2, 2_000_000_000)


def test_the_same_form_sent_twice_is_one_bid(world: World, consumer: Client) -> None:
    sent = form()

    first = consumer.post("/bids/new", sent)
    again = consumer.post("/bids/new", sent)
    world.settle()

    assert id_in(first["Location"]) == id_in(again["Location"])
    assert BidRow.objects.count() == 1


def test_a_waiting_bid_shows_where_it_fails(world: World, consumer: Client) -> None:
    answer = consumer.post("/bids/new", form(gpus="3"))
    world.settle()

    page = html(consumer.get(answer["Location"]).content)

    assert "Why it is not matched" in page
    assert "fewer than the 3 asked for" in page


def test_a_bids_page_comes_while_others_read_the_book(
    world: World, consumer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may do so for long: a page that waited for them would not show that it was matched."""
    monkeypatch.setattr(views, "BOOK_SECONDS_MAX", 0.0)
    where = consumer.post("/bids/new", form(limit="1.50"))["Location"]
    world.settle()
    before = consumer.get(where).content.decode()
    lock = books._readers[default_store()][settings.ENV.market].lock

    with ThreadPoolExecutor(1) as other:
        other.submit(lock.acquire).result()
        busy = consumer.get(f"/bids/{id_in(where)}/state")
        other.submit(lock.release).result()

    assert "Why it is not matched" in before
    assert busy.status_code == 200
    assert "The order book is busy" in busy.content.decode()


@pytest.mark.parametrize(
    ("query", "step"),
    [
        ("notice>=36h", "with the notice you ask for, at least 1 d 12 h"),
        ("reclaim>=100%", "with the pay on a reclaim you ask for, at least 100.0%"),
        ("grace>=90s", "with the grace you ask for, at least 1 min 30 s"),
    ],
)
def test_a_funnel_names_the_promise_that_is_lacking(
    world: World, consumer: Client, query: str, step: str
) -> None:
    told = html(consumer.post("/bids/estimate", form(query=query)).content)
    place = consumer.post("/bids/new", form(query=query))["Location"]
    world.settle()

    for page in (told, html(consumer.get(place).content)):
        assert f'<span>{step} <span class="quiet">2&nbsp;fewer</span>' in page


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"command": ""}, "command", "Say what runs"),
        ({"command": "sh -c 'echo"}, "command", "A quotation mark is not closed"),
        ({"image": "registry.example/train:3"}, "image", "named with its digest"),
        ({"volumes": "nothing"}, "volumes", "keeps no volume of that name"),
        ({"outputs": "../secrets"}, "outputs", "inside the work's folder"),
        ({"query": "memory=lots"}, "query", "does not go with that sign"),
        ({"hours": "0"}, "hours", "between one minute and 28 days"),
        ({"hours": "100"}, "hours", "no longer fits between now and the deadline"),
        ({"gpus": "500", "limit": "900"}, "limit", "does not have that much available"),
        ({"limit": "two dollars"}, "limit", "plain decimal number"),
        ({"idle_minutes": "1"}, "idle_minutes", "greater than or equal to 5"),
        ({"inputs": str(uuid4())}, "inputs", "not one of the available choices"),
        ({"secrets": "NOT_SET"}, "secrets", "not one of the available choices"),
    ],
)
def test_what_is_wrong_with_a_run_is_said_at_its_field_and_nothing_typed_is_lost(
    world: World, consumer: Client, changed: dict[str, str], field: str, said: str
) -> None:
    sent = form(patience="soonest", outputs="out/") | changed

    answer = consumer.post("/run", sent)

    shown = answer.context["form"]
    page = unescape(text(answer.content))
    assert answer.status_code == 422
    assert list(shown.errors) == [field]
    assert said in shown.errors[field][0] and page.count(shown.errors[field][0]) == 1
    for name in ("command", "outputs", "hours", "limit", "gpus"):
        assert shown[name].value() == sent[name]
    assert not BidRow.objects.exists()


def test_a_run_of_an_image_needs_no_command(world: World, consumer: Client) -> None:
    image = f"registry.example/train@sha256:{'a' * 64}"

    answer = consumer.post("/run", form(patience="soonest", command="", image=image))

    assert answer.status_code == 302


def test_an_earlier_bid_fills_in_the_form_and_is_the_same_again(
    world: World, consumer: Client
) -> None:
    asked = form(
        limit="1.50", gpus="1", hours="0.3333", command="sh -c 'echo a b'", outputs="out/ '*.pt'",
        idle_minutes="30", budget="3", resume="on", saves_minutes="5", query="memory>=40GiB",
    )  # fmt: skip
    where = consumer.post("/bids/new", asked)["Location"]
    world.settle()
    first = BidRow.objects.get()

    page = consumer.get(f"/bids/new?again={id_in(where)}")
    shown = {each.name: each.value() for each in page.context["form"]}
    consumer.post("/bids/new", {name: said for name, said in shown.items() if said})
    world.settle()

    second = BidRow.objects.exclude(pk=first.pk).get()
    apart = {"bid_id", "chain_id", "placed_at", "queued_at", "earliest_start", "deadline", "reason"}
    for name in {field.attname for field in BidRow._meta.fields} - apart:
        assert getattr(second, name) == getattr(first, name), name


def test_nobody_sees_what_another_organisation_bid_by_asking_for_it_again(
    world: World, consumer: Client
) -> None:
    where = consumer.post("/bids/new", form(limit="1.50", command="secret-program"))["Location"]
    world.settle()

    for client, asked in ((world.member(OWNER, "consumer"), id_in(where)), (consumer, "nothing")):
        page = client.get(f"/bids/new?again={asked}")
        assert page.status_code == 200
        assert "secret-program" not in page.content.decode()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"limit": "NaN"}, "An amount is a plain decimal number such as 2.15."),
        ({"limit": "1.0000000001"}, "An amount has at most nine decimal places"),
        ({"limit": "0"}, "A limit price lies above 0"),
        ({"hours": "0.001"}, "between one minute and 28 days"),
        ({"hours": "nan"}, "Enter a number."),
        ({"gpus": "-1"}, "greater than or equal to 1"),
        ({"gpus": "9" * 30}, "less than or equal to 1024"),
        ({"query": "memory=ten"}, "This condition does not go with that sign"),
        ({"query": "colour=red"}, "There is no such condition"),
        ({"query": "gpu=A100"}, "The GPU is chosen above."),
        ({"command": 'echo "open'}, "A quotation mark is not closed."),
        ({"kind": "mining"}, "Select a valid choice."),
        (
            {"deadline": "2020-01-01T00:00"},
            "The time asked for no longer fits between now and the deadline.",
        ),
        ({"earliest_start": "2020-01-01T00:00"}, "The earliest start lies in the past."),
        (
            {"gpus": "500", "hours": "100", "limit": "900"},
            "The account does not have that much available.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_place(
    world: World, consumer: Client, changed: dict[str, str], says: str
) -> None:
    late = {"deadline": f"{timezone.now() + timedelta(days=20):%Y-%m-%dT%H:%M}"}
    if "gpus" in changed and "hours" in changed:
        changed = {**late, **changed}

    answer = consumer.post("/bids/new", form(**changed))
    world.settle()

    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not BidRow.objects.exists()


def test_a_bid_can_be_changed_and_withdrawn(world: World, consumer: Client) -> None:
    place = consumer.post("/bids/new", form(limit="1.00"))["Location"].split("?")[0]
    world.settle()
    deadline = f"{timezone.now() + timedelta(hours=6):%Y-%m-%dT%H:%M}"

    changed = consumer.post(place, {"token": str(uuid4()), "limit": "1.10", "deadline": deadline})
    world.settle()
    withdrawn = consumer.post(f"{place}/cancel")
    world.settle()

    assert (changed.status_code, withdrawn.status_code) == (302, 302)
    row = BidRow.objects.get()
    assert (row.state, row.limit_nanos_per_gpu_hour) == ("cancelled", 1_100_000_000)
    page = html(consumer.get(place).content)
    assert "Why it was not matched" in page and "it would have won" in page
    told = consumer.get(f"/api/v1/bids/{row.bid_id}/explain").json()
    assert (told["reason"]["constraint"], told["price_needed"]) == ("limit", "2.00")
    assert told["as_of"] is not None
    again = consumer.post(place, {"token": str(uuid4()), "limit": "1.20", "deadline": deadline})
    assert again.status_code == 422
    assert b"That bid is no longer open" in again.content


def test_another_organisation_does_not_see_the_bid(world: World, consumer: Client) -> None:
    place = consumer.post("/bids/new", form(limit="1.00"))["Location"].split("?")[0]
    world.settle()
    stranger = world.member(OWNER, "consumer", "owner")

    assert stranger.get(place).status_code == 404
    assert stranger.get(f"{place}/state").status_code == 404
    assert stranger.post(f"{place}/cancel").status_code == 404
    assert BidRow.objects.get().state == "open"


def test_a_lease_shows_its_steps_and_can_be_ended(world: World, consumer: Client) -> None:
    consumer.post("/bids/new", form())
    world.settle()
    lease_id = LeaseRow.objects.get().lease_id

    page = consumer.get(f"/leases/{lease_id}").content.decode()
    ended = consumer.post(f"/leases/{lease_id}/end")
    world.settle()

    assert "Granted at $2.00 per GPU-hour" in page
    assert "$8.00 held for all of it." in page
    assert ended.status_code == 302
    assert LeaseRow.objects.get().state == "closed"
    after = consumer.get(ended["Location"]).content.decode()
    assert "The consumer ended the lease." in after
    again = consumer.post(f"/leases/{lease_id}/end")
    assert (again.status_code, b"That lease is over." in again.content) == (422, True)


def test_a_leases_page_has_its_end_first_then_its_log_then_all_that_happened(
    world: World, consumer: Client
) -> None:
    consumer.post("/bids/new", form())
    world.settle()
    lease = LeaseRow.objects.get()
    consumer.post(f"/leases/{lease.lease_id}/end")
    world.settle()

    page = consumer.get(f"/leases/{lease.lease_id}").content.decode()
    owners = world.member(OWNER, "owner").get(f"/leases/{lease.lease_id}").content.decode()

    places = [page.index(f'id="{name}"') for name in ("outcome", "h-axis", "h-log", "h-steps")]
    assert places == sorted(places)
    assert f'href="/bids/new?again={lease.bid_id}">Run it again' in page
    assert 'id="outcome"' in owners and "Run it again" not in owners


def test_work_that_was_cut_short_leads_to_what_goes_on_with_it(
    world: World, consumer: Client
) -> None:
    consumer.post("/bids/new", form(resume="on"))
    world.settle()
    lease = LeaseRow.objects.get()
    of_it: dict[str, Any] = {
        "lease_id": LeaseId(lease.lease_id),
        "host_id": world.host_id,
        "by": BY,
    }
    take_lease_at_once(default_store(), **of_it, now=timezone.now())
    lease_stopped(default_store(), **of_it, exit_code=None, now=timezone.now())
    world.settle()

    first = consumer.get(f"/leases/{lease.lease_id}").content.decode()
    later = LeaseRow.objects.exclude(lease_id=lease.lease_id).get()
    of_it["lease_id"] = LeaseId(later.lease_id)
    withdraw_offer(default_store(), offer_id=world.offer_id, by=BY, now=timezone.now())
    take_lease_at_once(default_store(), **of_it, now=timezone.now())
    lease_stopped(default_store(), **of_it, exit_code=None, now=timezone.now())
    world.settle()
    second = consumer.get(f"/leases/{later.lease_id}").content.decode()
    rest = BidRow.objects.get(resumes_lease_id=later.lease_id)

    assert f'It goes on as <a href="/leases/{later.lease_id}">' in first
    assert f'The rest waits as <a href="/bids/{rest.bid_id}">' in second
    assert "Run it again" not in first + second


def test_an_extension_must_end_later(world: World, consumer: Client) -> None:
    consumer.post("/bids/new", form())
    world.settle()
    lease = LeaseRow.objects.get()
    path = f"/leases/{lease.lease_id}/extend"

    def asked(hours: int) -> Any:
        until = lease.ends_at + timedelta(hours=hours)
        return consumer.post(path, {"token": str(uuid4()), "ends_at": f"{until:%Y-%m-%dT%H:%M}"})

    sooner, later = asked(-1), asked(2)
    world.settle()

    assert sooner.status_code == 422
    assert b"An extension must end later than the lease does now." in sooner.content
    assert later.status_code == 302
    assert LeaseRow.objects.get().ends_at > lease.ends_at


def test_what_stands_in_the_way_of_an_extension_is_told(world: World, consumer: Client) -> None:
    consumer.post("/bids/new", form())
    world.settle()
    lease = LeaseRow.objects.get()

    def asked(hours: int) -> tuple[dict[str, Any], str]:
        until = lease.ends_at + timedelta(hours=hours)
        form = {"token": str(uuid4()), "ends_at": f"{until:%Y-%m-%dT%H:%M}"}
        assert consumer.post(f"/leases/{lease.lease_id}/extend", form).status_code == 302
        world.settle()
        shape = consumer.get(f"/api/v1/leases/{lease.lease_id}").json()
        return shape["extension"], html(consumer.get(f"/leases/{lease.lease_id}").content)

    before = consumer.get(f"/api/v1/leases/{lease.lease_id}").json()["extension"]
    refused, page = asked(22)
    granted, later = asked(1)

    assert before is None
    assert (refused["answer"], refused["reason"]) == ("declined", "windows")
    assert "declined, because an offer it rests on has no window that long." in page
    assert (granted["answer"], granted["reason"], granted["reason_text"]) == ("granted", "", "")
    assert granted["ends_at"].endswith("Z") and granted["at"].endswith("Z")
    assert "granted." in later


def test_a_bid_says_with_how_little_it_makes_do_and_how_long_it_waits(
    world: World, consumer: Client
) -> None:
    until = timezone.now() + timedelta(hours=7)
    more = form(
        gpus="4",
        limit="1.00",
        gpus_min="1",
        hours_min="0.5",
        good_till="good-till-moment",
        good_until=f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M}",
        budget="3.50",
        auto_extend_until=f"{until:%Y-%m-%dT%H:%M}",
    )

    answer = consumer.post("/bids/new", more)
    world.settle()
    shown = consumer.get(answer["Location"]).content.decode()

    assert "Minimum GPUs" in shown
    assert "1 GPU" in shown
    assert "30 min" in shown
    assert "Good till" in shown
    assert "Extends until" in shown
    assert "$3.50 in all" in shown, "the budget is less than 4 GPUs for 2 hours at 1.00"


def test_a_time_to_wait_until_has_to_be_said(world: World, consumer: Client) -> None:
    answer = consumer.post("/bids/new", form(good_till="good-till-moment"))

    assert answer.status_code == 422
    assert "Say until when" in answer.content.decode()


def test_a_standing_bid_shows_its_chain_and_can_be_ended(world: World, consumer: Client) -> None:
    until = timezone.now() + timedelta(days=3)
    asked = form(limit="1.00", repeat_until=f"{until:%Y-%m-%dT%H:%M}", resume="on")

    answer = consumer.post("/bids/new", asked)
    world.settle()
    shown = consumer.get(answer["Location"]).content.decode()
    ended = consumer.post(f"{answer['Location'].split('?')[0]}/end-chain")
    world.settle()
    after = consumer.get(ended["Location"]).content.decode()

    assert "Repeats until" in shown
    assert "Chain of bids" in shown
    assert "1, this one" in shown
    assert "Ended. The consumer wanted no more." in after
    assert "Withdrawn" in after


@pytest.mark.parametrize(
    ("wrong", "opens"),
    [({}, ""), ({"limit": "no price"}, ""), ({"patience": "sometimes"}, " open")],
)
def test_what_is_folded_opens_where_it_is_wrong(
    world: World, consumer: Client, wrong: dict[str, str], opens: str
) -> None:
    sent = consumer.post("/bids/new", form(**wrong)) if wrong else consumer.get("/bids/new")

    assert f"<details{opens}><summary>More options" in html(sent.content)
