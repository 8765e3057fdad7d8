"""A lease's page says how its running work is reached, as far as the host's owner allows."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from marketplace.models import LeaseRow, LeaseShareRow
from metering.ingest import tunnels
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
