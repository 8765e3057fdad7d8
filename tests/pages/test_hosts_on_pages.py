"""An owner makes a host known on the page, enrols its agent by a code, and retires it."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from ledger.models import TokenRow
from listings.domain.markets import read_markets
from listings.models import HostRow
from metering.models import HealthEvent
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def form(**changed: str) -> dict[str, str]:
    said = {"token": str(uuid4()), "title": "rack nine", "region": "eu-central", "labels": ""}
    return said | changed


def test_who_has_no_host_is_led_to_the_form(world: World) -> None:
    newcomer = world.member(CONSUMER, "owner")
    for path in ("/owner", "/offers", "/offers/new"):
        assert 'href="/owner/hosts/new"' in newcomer.get(path).content.decode()
    assert newcomer.get("/owner/hosts/new").status_code == 200


CODE = re.compile(r"offpeak-agent enrol http://testserver ([A-Z0-9]{5}-[A-Z0-9]{5})")


def enrol(code: str) -> str:
    """Exchange a code as an agent does; return the token."""
    answer = Client().post(
        "/api/v1/agent/enrolment",
        {"nonce": uuid4().hex, "hostname": "n1"},
        content_type="application/json",
        headers={"Authorization": f"Enrolment {code}"},
    )
    assert answer.status_code == 200, answer.content
    token: str = answer.json()["token"]
    return token


def asks(token: str) -> int:
    """Return what the market answers an agent with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return Client().get("/api/v1/agent/assignments", headers=headers).status_code


def test_a_host_is_added_and_its_agent_gets_a_token_by_the_code_that_works(
    world: World, owner: Client
) -> None:
    answer = owner.post("/owner/hosts/new", form(labels="rack=9 storage=nvme"))
    world.settle()

    found = CODE.search(answer.content.decode())
    assert answer.status_code == 200 and found is not None
    assert "offp_host_" not in answer.content.decode()
    row = HostRow.objects.get(title="rack nine")
    assert (row.tenant_id, row.region, row.market) == (world.tenant(OWNER), "eu-central", "main")
    assert row.labels == {"rack": "9", "storage": "nvme"}
    assert "rack nine" in owner.get("/owner").content.decode()
    token = enrol(found[1])
    world.settle()
    assert asks(token) == 200


def test_the_longest_name_of_a_host_has_a_token_too(world: World, owner: Client) -> None:
    name = "r" * 120
    made = owner.post("/owner/hosts/new", form(title=name))
    world.settle()
    row = HostRow.objects.get(title=name)
    again = owner.post("/settings", {"token": str(uuid4()), "host": str(row.host_id)})
    found = CODE.search(made.content.decode())

    assert found is not None and enrol(found[1]).startswith("offp_host_")
    assert again.status_code == 200
    assert "offp_host_" in again.content.decode()


def test_the_same_form_sent_twice_makes_one_host(world: World, owner: Client) -> None:
    sent = form()
    owner.post("/owner/hosts/new", sent)
    owner.post("/owner/hosts/new", sent)
    world.settle()

    assert HostRow.objects.filter(title="rack nine").count() == 1


def test_a_token_that_its_owner_revokes_is_refused_at_once_and_a_new_code_helps(
    world: World, owner: Client
) -> None:
    here = f"/owner/hosts/{world.host_id}/agent"
    first = CODE.search(owner.post(here).content.decode())
    assert first is not None
    token = enrol(first[1])
    world.settle()
    assert asks(token) == 200
    row = TokenRow.objects.get(prefix=token[:16])
    assert row.prefix in owner.get(here).content.decode()

    answer = owner.post(f"{here}/tokens/{row.token_id}/revoke")
    world.settle()

    assert (answer.status_code, asks(token)) == (302, 401)
    second = CODE.search(owner.post(here).content.decode())
    assert second is not None
    token = enrol(second[1])
    world.settle()
    assert asks(token) == 200


def test_what_an_agent_said_of_its_gpus_is_on_its_page(world: World, owner: Client) -> None:
    here = f"/owner/hosts/{world.host_id}/agent"
    assert "Nothing yet: it tells of faults" in owner.get(here).content.decode()
    HealthEvent.objects.create(
        host_id=world.host_id,
        boot_id=uuid4(),
        seq=1,
        tenant_id=world.tenant(OWNER),
        gpu_uuid="GPU-x",
        kind="cleaned",
        at=timezone.now(),
        detail="after lease 7: none of its processes is left",
        received_at=timezone.now(),
    )

    said = owner.get(here).content.decode()

    assert "cleaned" in said and "after lease 7: none of its processes is left" in said


def test_nobody_else_makes_codes_or_revokes_tokens_of_a_host(world: World, owner: Client) -> None:
    here = f"/owner/hosts/{world.host_id}/agent"
    found = CODE.search(owner.post(here).content.decode())
    assert found is not None
    token = enrol(found[1])
    world.settle()
    row = TokenRow.objects.get(prefix=token[:16])
    other, consumer = world.member(CONSUMER, "owner"), world.member(OWNER, "consumer")

    for client, status in ((other, 404), (consumer, 403)):
        assert client.get(here).status_code == status
        assert client.post(here).status_code == status
        assert client.post(f"{here}/tokens/{row.token_id}/revoke").status_code == status
    person = TokenRow.objects.exclude(host_id=world.host_id).first()
    if person is not None:
        assert owner.post(f"{here}/tokens/{person.token_id}/revoke").status_code == 404
    world.settle()
    assert asks(token) == 200


def test_a_retired_host_gets_no_code(world: World, owner: Client) -> None:
    owner.post(f"/owner/hosts/{world.host_id}/retire")
    world.settle()
    answer = owner.post(f"/owner/hosts/{world.host_id}/agent")

    assert answer.status_code == 422
    assert "retired" in answer.content.decode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"title": ""}, "This field is required"),
        ({"labels": "nonsense"}, "A label is a lower-case name"),
        ({"region": "Ä ß"}, "lower-case"),
    ],
)
def test_what_cannot_be_read_is_said_and_nothing_is_made(
    world: World, owner: Client, changed: dict[str, str], said: str
) -> None:
    before = HostRow.objects.count()
    answer = owner.post("/owner/hosts/new", form(**changed))
    world.settle()

    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert HostRow.objects.count() == before


def test_where_there_are_several_markets_a_host_goes_to_that_of_its_region_or_the_chosen_one(
    world: World, owner: Client
) -> None:
    with override_settings(MARKETS=read_markets("main", "eu=eu;us=us-east")):
        owner.post("/owner/hosts/new", form(title="by region", market=""))
        owner.post("/owner/hosts/new", form(title="chosen", market="us"))
    world.settle()

    assert HostRow.objects.get(title="by region").market == "eu"
    assert HostRow.objects.get(title="chosen").market == "us"


def test_a_host_is_retired_for_good(world: World, owner: Client) -> None:
    answer = owner.post(f"/owner/hosts/{world.host_id}/retire")
    world.settle()

    assert answer.status_code == 302
    assert HostRow.objects.get(host_id=world.host_id).state == "retired"
    assert str(world.host_id) not in owner.get("/owner").content.decode()


def test_an_owner_turns_the_switch_of_a_host_and_sees_how_both_stand(
    world: World, owner: Client
) -> None:
    here = f"/owner/hosts/{world.host_id}/turn"
    assert "Take no new work on" in owner.get("/owner").content.decode()

    assert owner.post(here, {"taking": "paused"}).status_code == 302
    world.settle()

    page = owner.get("/owner").content.decode()
    assert HostRow.objects.get(host_id=world.host_id).on_market == "paused"
    assert "on the market" in page and "Resume" in page
    HostRow.objects.filter(host_id=world.host_id).update(at_host="draining")
    assert "Draining" in owner.get("/owner").content.decode()
    owner.post(here, {"taking": "all"})
    world.settle()
    assert HostRow.objects.get(host_id=world.host_id).on_market == "all"


def test_a_switch_has_no_other_positions_and_is_its_owners_alone(
    world: World, owner: Client
) -> None:
    here = f"/owner/hosts/{world.host_id}/turn"

    assert owner.post(here, {"taking": "off"}).status_code == 400
    assert world.member(CONSUMER, "owner").post(here, {"taking": "paused"}).status_code == 404
    assert world.member(OWNER, "consumer").post(here, {"taking": "paused"}).status_code == 403


def test_nobody_retires_the_host_of_another(world: World) -> None:
    other = world.member(CONSUMER, "owner")
    assert other.post(f"/owner/hosts/{world.host_id}/retire").status_code == 404
    consumer = world.member(OWNER, "consumer")
    assert consumer.get("/owner/hosts/new").status_code == 403
    assert consumer.post(f"/owner/hosts/{world.host_id}/retire").status_code == 403
    world.settle()
    assert HostRow.objects.get(host_id=world.host_id).state != "retired"
