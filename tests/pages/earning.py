"""An owner who earned, and forms of pages that are sent."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.test import Client

from ledger import commands
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem
from tests.pages.reading import html
from tests.pages.world import BY, OWNER, World


def earn(world: World) -> None:
    then = world.now.replace(minute=0, second=0) - timedelta(days=30)
    hold, lease, millis = HoldId(uuid4()), LeaseId(uuid4()), 10 * 3_600_000
    commands.place_hold(
        world.store,
        account_id=world.account_id,
        hold_id=hold,
        money=Money(21_000_000_000),
        purpose="bid:1",
        by=BY,
        now=then,
    )
    commands.capture_usage(
        world.store,
        account_id=world.account_id,
        hold_id=hold,
        lease_id=lease,
        window=Window(then, then + timedelta(hours=1)),
        gpu_millis=millis,
        price=Rate(2_000_000_001),
        fee_ppm=50_000,
        owner_millis=[(world.tenant(OWNER), millis)],
        platform_id=PLATFORM_ID,
        cost_centre="CC-1",
        item=UsageItem(sku="H100-80G"),
        by=BY,
        now=then + timedelta(hours=1),
    )
    world.settle()


def post(client: Client, world: World, path: str, **form: str) -> str:
    answer = client.post(path, form)
    world.settle()
    if answer.status_code == 302:
        answer = client.get(answer["Location"])
    return html(answer.content)
