"""The API of supply over HTTP, on the PostgreSQL store and real rows."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain import tokens
from ledger.domain.events import TenantRegistered, TokenIssued
from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Money
from ledger.domain.parties import Tenant
from ledger.domain.tokens import Token
from ledger.eventstore.port import NewEvent, load, stream_name
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from listings import commands
from listings.domain.events import Chosen
from listings.domain.offers import Offer
from listings.projections import PROJECTIONS
from tests.access.conftest import Caller, admit
from tests.conftest import SOMEBODY
from tests.listings.conftest import gpu

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.listings.routes")]

HOST_BODY = {"title": "Lab 3", "region": "eu-west", "labels": {"rack": "2"}}


@pytest.fixture
def owner(db: None) -> Caller:
    return admit("ada-labs", "owner")


@pytest.fixture
def stranger(db: None) -> Caller:
    return admit("eve-works", "owner")


def send(caller: Caller, method: str, path: str, body: Any = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = Client(raise_request_exception=False).generic(
        method,
        f"/api/v1/{path}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}", **named},
    )
    return answer


def read() -> None:
    while follow_projections(PostgresStore(), PROJECTIONS):
        pass


def new_host(owner: Caller) -> str:
    """Register a host over HTTP and report two GPUs as its agent."""
    answer = send(owner, "POST", "hosts", HOST_BODY)
    assert answer.status_code == 201, answer.content
    host_id = answer.json()["id"]
    commands.report_inventory(
        PostgresStore(),
        host_id=host_id,
        gpus=[gpu("GPU-a"), gpu("GPU-b")],
        by=SOMEBODY,
        now=timezone.now(),
    )
    return str(host_id)


def offer_body(host_id: str, **fields: Any) -> dict[str, Any]:
    tonight = timezone.now().replace(microsecond=0) + timedelta(hours=2)
    known: dict[str, Any] = {
        "host_id": host_id,
        "gpu_uuids": ["GPU-a"],
        "windows": [
            {
                "starts_at": tonight.isoformat(),
                "ends_at": (tonight + timedelta(hours=8)).isoformat(),
            }
        ],
        "floor": "1.50",
    }
    return known | fields


def test_an_owner_lists_a_night_and_reads_it_back(owner: Caller) -> None:
    host_id, today = new_host(owner), timezone.now().date()
    weekly = {
        "zone": "Europe/London",
        # Not today's: whether this night is over, or a week from now begins, is the clock's affair.
        "days": sorted((today + timedelta(days=ahead)).weekday() for ahead in (2, 4)),
        "since": "22:00",
        "until": "06:00",
        "first": today.isoformat(),
    }

    made = send(owner, "POST", "offers", offer_body(host_id, windows=[], weekly=weekly))
    read()
    shown = send(owner, "GET", f"offers/{made.json()['id']}?after={made.json()['position']}")

    assert made.status_code == 201, made.content
    offer = shown.json()
    assert (offer["floor"], offer["currency"], offer["state"]) == ("1.50", "USD", "listed")
    assert offer["gpus"][0]["model"] == "H100-80GB"
    assert offer["weekly"] == {**weekly, "last": None}
    assert shown["ETag"] == '"1"'
    windows = send(owner, "GET", f"offers/{offer['id']}/windows").json()["data"]
    assert len(windows) == 2


def test_a_repeat_with_the_same_key_makes_one_offer(owner: Caller) -> None:
    host_id = new_host(owner)
    body = offer_body(host_id)

    first = send(owner, "POST", "offers", body, Idempotency_Key="night-1")
    again = send(owner, "POST", "offers", body, Idempotency_Key="night-1")

    assert again.json() == first.json()
    read()
    assert len(send(owner, "GET", "offers").json()["data"]) == 1


def test_an_offer_goes_through_its_life(owner: Caller) -> None:
    offer_id = send(owner, "POST", "offers", offer_body(new_host(owner))).json()["id"]

    answers = [
        send(owner, "PATCH", f"offers/{offer_id}", {"floor": "2.00", "currency": "USD"}),
        send(owner, "POST", f"offers/{offer_id}/pause"),
        send(owner, "POST", f"offers/{offer_id}/resume", If_Match='"3"'),
        send(owner, "POST", f"offers/{offer_id}/pause", If_Match='"3"'),
        send(owner, "POST", f"offers/{offer_id}/withdraw"),
        send(owner, "POST", f"offers/{offer_id}/resume"),
    ]

    assert [each.status_code for each in answers] == [200, 200, 200, 412, 200, 409]
    assert answers[-1].json()["code"] == "offer-is-withdrawn"
    read()
    assert send(owner, "GET", f"offers/{offer_id}").json()["state"] == "withdrawn"
    listed = send(owner, "GET", "offers?state=listed,paused").json()
    assert listed == {"data": [], "next": None}


def test_terms_change_over_http_with_the_floor_or_without(owner: Caller) -> None:
    offer_id = send(owner, "POST", "offers", offer_body(new_host(owner))).json()["id"]
    step = {"notice_seconds": 7_200, "fee_ppm": 0}

    both = {"floor": "2.00", "currency": "USD", "notice_seconds": 1_800, "grace_seconds": 60}
    first = send(owner, "PATCH", f"offers/{offer_id}", both)
    more = {"reclaim_fee_ppm": 200_000, "reclaim_steps": [step], "lease_min_seconds": 1_800}
    second = send(owner, "PATCH", f"offers/{offer_id}", more | {"workload_kinds": ["render"]})
    read()
    shown = send(owner, "GET", f"offers/{offer_id}").json()

    assert (first.status_code, second.status_code) == (200, 200)
    assert (shown["floor"], shown["notice_seconds"], shown["grace_seconds"]) == ("2.00", 1_800, 60)
    assert (shown["reclaim_fee_ppm"], shown["reclaim_steps"]) == (200_000, [step])
    assert (shown["lease_min_seconds"], shown["workload_kinds"]) == (1_800, ["render"])
    (listed,) = send(owner, "GET", "listings").json()["data"]
    assert (listed["notice_seconds"], listed["grace_seconds"]) == (1_800, 60)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "body-invalid"),
        ({"floor": "2.00"}, "body-invalid"),
        ({"currency": "USD", "notice_seconds": 60}, "body-invalid"),
        ({"cleaning_seconds": 60}, "body-invalid"),
        ({"notice_seconds": "60"}, "body-invalid"),
        ({"notice_seconds": 8 * 86_400}, "notice-out-of-bounds"),
        ({"grace_seconds": 301}, "grace-out-of-bounds"),
        ({"reclaim_fee_ppm": 1_000_001}, "reclaim-fee-out-of-bounds"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_writes_nothing(
    owner: Caller, body: dict[str, Any], code: str
) -> None:
    offer_id = send(owner, "POST", "offers", offer_body(new_host(owner))).json()["id"]
    head = PostgresStore().head()

    answer = send(owner, "PATCH", f"offers/{offer_id}", body)

    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert PostgresStore().head() == head


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"floor": 1.5}, 422, "body-invalid"),
        ({"floor": "1.0000000001"}, 422, "body-invalid"),
        ({"floor": "NaN"}, 422, "body-invalid"),
        ({"floor": "-1"}, 422, "body-invalid"),
        ({"windows": [{"starts_at": "2026-01-05T22:00:00", "ends_at": "x"}]}, 422, "body-invalid"),
        ({"colour": "red"}, 422, "body-invalid"),
        ({"gpu_uuids": ["GPU-nowhere"]}, 409, "gpu-not-on-host"),
        ({"windows": []}, 422, "windows-missing"),
        ({"lease_min_seconds": -1}, 422, "body-invalid"),
        ({"lease_min_seconds": 10**30}, 422, "body-invalid"),
        ({"host_id": str(uuid4())}, 404, "host-unknown"),
    ],
)
def test_bad_input_is_refused_and_writes_nothing(
    owner: Caller, fields: dict[str, Any], status: int, code: str
) -> None:
    host_id = new_host(owner)
    head = PostgresStore().head()

    answer = send(owner, "POST", "offers", offer_body(host_id) | fields)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert PostgresStore().head() == head


def test_two_offers_of_one_gpu_at_one_time_are_refused_over_http(owner: Caller) -> None:
    host_id = new_host(owner)
    send(owner, "POST", "offers", offer_body(host_id))

    answer = send(owner, "POST", "offers", offer_body(host_id))

    assert (answer.status_code, answer.json()["code"]) == (409, "gpu-listed-already")


def test_an_owner_turns_the_switch_of_a_host(owner: Caller) -> None:
    host_id = new_host(owner)
    send(owner, "POST", "offers", offer_body(host_id))
    read()
    assert len(send(owner, "GET", "listings").json()["data"]) == 1

    for verb, taking in (("pause", "paused"), ("drain", "draining"), ("release", "released")):
        assert send(owner, "POST", f"hosts/{host_id}/{verb}").status_code == 200
        read()
        shown = send(owner, "GET", f"hosts/{host_id}").json()
        assert (shown["at_host"], shown["on_market"]) == ("all", taking)
        assert send(owner, "GET", "listings").json()["data"] == []
    send(owner, "POST", f"hosts/{host_id}/resume")
    read()

    assert send(owner, "GET", f"hosts/{host_id}").json()["on_market"] == "all"
    assert len(send(owner, "GET", "listings").json()["data"]) == 1


def test_another_tenant_finds_nothing(owner: Caller, stranger: Caller) -> None:
    host_id = new_host(owner)
    offer_id = send(owner, "POST", "offers", offer_body(host_id)).json()["id"]
    read()

    asked = [
        ("GET", f"hosts/{host_id}", None),
        ("POST", f"hosts/{host_id}/retire", None),
        ("POST", f"hosts/{host_id}/pause", None),
        ("POST", f"hosts/{host_id}/drain", None),
        ("POST", f"hosts/{host_id}/release", None),
        ("POST", f"hosts/{host_id}/resume", None),
        ("POST", f"hosts/{host_id}/tokens", {"title": "agent"}),
        ("GET", f"offers/{offer_id}", None),
        ("GET", f"offers/{offer_id}/windows", None),
        ("PATCH", f"offers/{offer_id}", {"floor": "2.00", "currency": "USD"}),
        ("POST", f"offers/{offer_id}/pause", None),
        ("POST", f"offers/{offer_id}/resume", None),
        ("POST", f"offers/{offer_id}/withdraw", None),
        ("POST", "offers", offer_body(host_id)),
    ]

    assert [send(stranger, *each).status_code for each in asked] == [404] * len(asked)
    assert send(stranger, "GET", "offers").json()["data"] == []
    assert send(stranger, "GET", "hosts").json()["data"] == []


def test_the_market_sees_the_offer_but_not_the_owner(owner: Caller, stranger: Caller) -> None:
    host_id = new_host(owner)
    send(owner, "POST", "offers", offer_body(host_id))
    read()

    listed = send(stranger, "GET", "listings?model=H100")
    supply = send(stranger, "GET", "supply")

    assert [each["floor"] for each in listed.json()["data"]] == ["1.50"]
    for secret in (str(owner.tenant_id), host_id, "GPU-a"):
        assert secret not in listed.content.decode()
    assert supply.json()["data"][0]["gpus_day"] == 1


@pytest.mark.parametrize(
    "query", ["since=now", "since=2026-01-05T12:00:00Z&until=2026-01-05T12:00:00Z"]
)
def test_a_span_that_makes_no_sense_is_refused(owner: Caller, query: str) -> None:
    assert send(owner, "GET", f"listings?{query}").status_code == 422


def test_a_preview_writes_nothing(owner: Caller) -> None:
    body = offer_body("")
    del body["host_id"]
    head = PostgresStore().head()

    answer = send(owner, "POST", "offers/preview", body)

    assert answer.status_code == 200, answer.content
    assert answer.json()["full"] == "11.40"
    assert answer.json()["fill"]["basis"] == "assumed"
    assert PostgresStore().head() == head


def test_a_preview_takes_what_publishing_takes_and_refuses_what_it_refuses(
    owner: Caller, stranger: Caller
) -> None:
    """One shape for both: the very body that publishes can be previewed before."""
    host_id = new_host(owner)
    body = offer_body(host_id) | {"offer_id": str(uuid4())}
    head = PostgresStore().head()

    previewed = send(owner, "POST", "offers/preview", body)
    foreign = send(stranger, "POST", "offers/preview", body)
    other = send(owner, "POST", "offers/preview", body | {"gpu_uuids": ["GPU-elsewhere"]})
    assert PostgresStore().head() == head
    made = send(owner, "POST", "offers", body)

    assert previewed.status_code == 200, previewed.content
    assert made.status_code == 201, made.content
    assert (other.status_code, other.json()["code"]) == (409, "gpu-not-on-host")
    assert foreign.status_code in (403, 404)
    taken = send(owner, "POST", "offers/preview", offer_body(host_id))
    assert (taken.status_code, taken.json()["code"]) == (409, "gpu-listed-already")


def test_a_consumer_lists_nothing(db: None) -> None:
    consumer = admit("con-sumer", "consumer")

    answer = send(consumer, "POST", "hosts", HOST_BODY)

    assert (answer.status_code, answer.json()["code"]) == (403, "role-missing")


def test_a_host_is_made_known_under_an_id_of_the_owners_choice(owner: Caller) -> None:
    host_id = uuid4()

    first = send(owner, "PUT", f"hosts/{host_id}", HOST_BODY)
    again = send(owner, "PUT", f"hosts/{host_id}", HOST_BODY)
    other = send(owner, "PUT", f"hosts/{host_id}", HOST_BODY | {"region": "eu-north"})

    assert first.json() == again.json()
    assert (other.status_code, other.json()["code"]) == (409, "host-terms-differ")
    read()
    shown = send(owner, "GET", f"hosts/{host_id}").json()
    assert (shown["state"], shown["labels"]) == ("new", {"rack": "2"})


def test_an_agents_token_is_for_one_host_and_kept_as_its_hash(owner: Caller) -> None:
    store = PostgresStore()
    joined = TenantRegistered(
        tenant_id=TenantId(owner.tenant_id),
        slug="ada-labs",
        title="Ada",
        currency="USD",
        is_platform=False,
        at=timezone.now(),
    )
    stream = stream_name(Tenant, owner.tenant_id)
    store.append(stream, [NewEvent(uuid4(), joined)], expected=0, by=SOMEBODY)
    host_id = new_host(owner)
    read()

    made = send(owner, "POST", f"hosts/{host_id}/tokens", {"title": "rack 2"}).json()

    (issued,) = store.read_stream(stream_name(Token, made["id"]))
    assert isinstance(issued.event, TokenIssued)
    assert str(issued.event.host_id) == host_id
    assert issued.event.scopes == ("agent",)
    assert issued.event.sha256 == tokens.read(made["token"]).sha256
    assert made["token"] not in issued.data.decode()


def test_a_gpu_is_listed_in_shares_over_http(owner: Caller, stranger: Caller) -> None:
    host_id = new_host(owner)
    parts = [
        {"memory_mib": 50_000, "compute_percent": 75},
        {"memory_mib": 20_000, "compute_percent": 25},
    ]
    body = offer_body(host_id, shares={"kind": "mps", "parts": parts})
    previewed = send(
        owner, "POST", "offers/preview", {k: v for k, v in body.items() if k != "host_id"}
    )
    made = send(owner, "POST", "offers", body)
    read()

    shown = send(owner, "GET", f"offers/{made.json()['id']}").json()
    (public,) = send(stranger, "GET", "listings").json()["data"]

    assert (made.status_code, shown["isolation"]) == (201, "mps")
    assert shown["shares"] == {"kind": "mps", "count": 0, "parts": parts, "profiles": []}
    assert [(gpu["card_uuid"], gpu["compute_percent"]) for gpu in shown["gpus"]] == [
        ("GPU-a", 75),
        ("GPU-a", 25),
    ]
    assert shown["gpus"][1]["uuid"].startswith("GPU-a/mps-2of2x")
    assert (public["gpus"], public["compute_percent"], public["isolation"]) == (2, 25, "mps")
    window = body["windows"][0]
    hours = (
        datetime.fromisoformat(window["ends_at"]) - datetime.fromisoformat(window["starts_at"])
    ) / timedelta(hours=1)
    assert previewed.json()["listed_gpu_ms"] == 2 * hours * 3_600_000


def test_a_card_is_listed_in_mig_instances_over_http(owner: Caller) -> None:
    host_id = new_host(owner)
    cards = [gpu("GPU-a", mig_enabled=True)]
    commands.report_inventory(
        PostgresStore(),
        host_id=HostId(UUID(host_id)),
        gpus=cards,
        by=SOMEBODY.step("mig"),
        now=timezone.now(),
    )
    impossible = {"kind": "mig", "profiles": ["4g.40gb", "4g.40gb"]}
    refused = send(owner, "POST", "offers", offer_body(host_id, shares=impossible))
    whole = send(owner, "POST", "offers", offer_body(host_id))
    wanted = {"kind": "mig", "profiles": ["1g.10gb", "3g.40gb"]}
    made = send(owner, "POST", "offers", offer_body(host_id, shares=wanted))
    read()

    shown = send(owner, "GET", f"offers/{made.json()['id']}").json()

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "mig-layout-impossible")
    assert problem["details"]["profiles"] == ["4g.40gb", "4g.40gb"]
    assert problem["details"]["slices"] == {"compute": 7, "memory": 8}
    assert whole.json()["code"] == "mig-mode-on"
    assert shown["isolation"] == "mig"
    assert shown["shares"]["profiles"] == ["3g.40gb", "1g.10gb"]
    assert [each["uuid"] for each in shown["gpus"]] == [
        "GPU-a/mig-3g.40gb@0-3",
        "GPU-a/mig-1g.10gb@4-4",
    ]


def test_a_card_is_listed_by_demand_over_http_and_says_what_it_became(owner: Caller) -> None:
    host_id = new_host(owner)
    forms = [{"floor": "2.00"}, {"shares": {"kind": "mps", "count": 4}, "floor": "0.60"}]
    ways = {"forms": forms, "form_min_seconds": 300}
    alone = send(owner, "POST", "offers", offer_body(host_id, by_demand={"forms": forms[:1]}))
    made = send(owner, "POST", "offers", offer_body(host_id, by_demand=ways))
    read()
    first = send(owner, "GET", f"offers/{made.json()['id']}").json()
    store, old = PostgresStore(), load(PostgresStore(), Offer, made.json()["id"])
    assert old is not None and old.published.by_demand is not None
    commands.choose_form(
        store,
        offer=old.published,
        form=old.published.by_demand.forms[1],
        offer_id=OfferId(uuid4()),
        chosen=Chosen(old.published.offer_id, Money(3, "USD"), Money(1, "USD"), 3, 1),
        by=SOMEBODY.step("form"),
        now=old.published.at + timedelta(seconds=300),
    )
    read()

    before = send(owner, "GET", f"offers/{made.json()['id']}").json()
    after = send(owner, "GET", f"offers/{before['succeeded_by']}").json()

    assert alone.json()["code"] == "forms-unfit"
    assert (first["floor"], first["shares"], first["chosen"]) == ("2.00", None, None)
    assert [form["floor"] for form in first["by_demand"]["forms"]] == ["2.00", "0.60"]
    assert before["state"] == "withdrawn"
    assert (after["state"], after["isolation"], after["floor"]) == ("listed", "mps", "0.60")
    assert after["chosen"] == {
        "instead_of": first["id"],
        "worth": "0.000000003",
        "worth_before": "0.000000001",
        "currency": "USD",
        "bids": 3,
        "bids_before": 1,
    }


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        ({"kind": "mps", "count": 1}, "shares-unfit"),
        ({"kind": "mps", "parts": [{"memory_mib": 90_000, "compute_percent": 5}]}, "shares-unfit"),
        ({"kind": "mig", "count": 2}, "shares-unfit"),
        ({"kind": "cooperative", "count": 2}, "body-invalid"),
        ({"kind": "mps", "count": 2, "size": 1}, "body-invalid"),
    ],
)
def test_shares_that_cannot_be_are_refused_over_http(
    owner: Caller, shares: dict[str, Any], code: str
) -> None:
    host_id = new_host(owner)

    answer = send(owner, "POST", "offers", offer_body(host_id, shares=shares))
    whole = send(owner, "POST", "offers", offer_body(host_id, isolation="mps"))

    assert answer.status_code in (400, 409, 422), answer.content
    assert answer.json()["code"] == code
    assert whole.json()["code"] == "isolation-unfit"
