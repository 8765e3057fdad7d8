"""A lease's page says how its running work is reached, as far as the host's owner allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from marketplace.models import LeaseRow, LeaseShareRow
from metering.ingest import tunnels
from metering.ingest.handing_over import HandOverNotGood, taken_over
from metering.ingest.tunnels import Agent, Holder
from tests.pages.bid_form import form
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db

HERE = Holder(uuid4(), "http://127.0.0.1:8000")


def test_the_commands_are_there_as_far_as_the_owner_allows(world: World) -> None:
    world.list_gpus(0, 1)
    consumer, owner = world.member(CONSUMER, "consumer"), world.member(OWNER, "owner")
    consumer.post("/bids/new", form())
    world.settle()
    lease = LeaseRow.objects.get()
    path, lease_id = f"/leases/{lease.lease_id}", lease.lease_id

    def page(browser: Client) -> str:
        return html(browser.get(path).content)

    LeaseShareRow.objects.update(phase="wait")
    assert "Connect</h2>" not in page(consumer), "nothing of it runs"
    LeaseShareRow.objects.update(phase="run")
    assert "nobody in: its owner allows it" in page(consumer)

    agent = Agent(world.host_id, world.tenant(OWNER), uuid4())
    tunnels.note_opened(agent, HERE, "ports", now=timezone.now())
    told = page(consumer)
    assert f"offpeak port-forward {lease_id} 8888" in told
    assert f"offpeak ssh {lease_id}" not in told and "ports, and no shell" in told

    tunnels.note_opened(agent, HERE, "shell", now=timezone.now())
    tunnels.note_connections(HERE, {agent.host_id: {str(lease_id): 2}}, [agent.host_id])
    told = page(consumer)
    assert f"offpeak ssh {lease_id}" in told
    assert "2 open now" in told and "after 30 min in which nothing passes" in told
    assert "Connect</h2>" not in page(owner), "an owner has no way into the work of others"


def test_a_port_opens_in_the_browser_on_an_origin_that_is_not_the_markets(
    world: World, settings: Any
) -> None:
    world.list_gpus(0, 1)
    consumer, owner = world.member(CONSUMER, "consumer"), world.member(OWNER, "owner")
    consumer.post("/bids/new", form())
    world.settle()
    lease_id = LeaseRow.objects.get().lease_id
    LeaseShareRow.objects.update(phase="run")
    agent = Agent(world.host_id, world.tenant(OWNER), uuid4())
    tunnels.note_opened(agent, HERE, "ports", now=timezone.now())
    path = f"/leases/{lease_id}"

    settings.ENV = replace(settings.ENV, work_domain="")
    assert "Open port in the browser" not in html(consumer.get(path).content)
    refused = consumer.post(f"{path}/open", {"port": "8888"})
    assert "offpeak port-forward" in html(refused.content) and refused.status_code == 422

    settings.ENV = replace(settings.ENV, work_domain="work.example")
    page = consumer.get(path, headers={"Host": "localhost:8000"})
    assert "Open port in the browser" in html(page.content)
    assert "form-action 'self' http://*.work.example:8000;" in page["Content-Security-Policy"]
    sent_on = consumer.post(f"{path}/open", {"port": "8888"}, headers={"Host": "localhost:8000"})
    address, _, token = sent_on["Location"].partition("?token=")
    assert address == f"http://8888-{lease_id}.work.example:8000/.offpeak/enter"
    permit = taken_over(unquote(token))
    assert (permit.lease_id, permit.port, permit.what) == (lease_id, 8888, "port")
    with pytest.raises(HandOverNotGood):
        taken_over(unquote(token))
    for port in ("", "0", "99999", "x"):
        assert consumer.post(f"{path}/open", {"port": port}).status_code == 422
    assert owner.post(f"{path}/open", {"port": "8888"}).status_code in (403, 404)
    tunnels.note_opened(agent, HERE, "off", now=timezone.now())
    assert "does not allow this" in html(consumer.post(f"{path}/open", {"port": "1"}).content)
