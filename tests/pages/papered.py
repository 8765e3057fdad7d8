"""A month that was used, and what finance does with it on pages."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.test import Client

from ledger import commands
from ledger.commands import closing
from ledger.domain.closing import Check
from ledger.domain.ids import HoldId, LeaseId, UserId
from ledger.domain.money import Money, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from tests.pages.reading import html
from tests.pages.world import BY, OWNER, PLATFORM, World


def used(world: World) -> World:
    """Let the consumer's unit use an hour in the month before this, and soft-close that."""
    period = Period.of(world.now.replace(day=1) - timedelta(days=1))
    hold_id = HoldId(uuid4())
    start = period.window.starts_at
    commands.place_hold(
        world.store,
        account_id=world.account_id,
        hold_id=hold_id,
        money=Money(10_000_000_000),
        purpose="bid:1",
        by=BY,
        now=start,
    )
    commands.capture_usage(
        world.store,
        account_id=world.account_id,
        hold_id=hold_id,
        lease_id=LeaseId(uuid4()),
        window=Window(start, start + timedelta(hours=1)),
        gpu_millis=3_600_000,
        price=Rate(1_730_000_001),
        fee_ppm=80_000,
        owner_millis=((world.tenant(OWNER), 3_600_000),),
        platform_id=world.tenant(PLATFORM),
        cost_centre="CI-2100",
        by=BY,
        now=start + timedelta(hours=2),
    )
    closing.soft_close_period(world.store, period, user_id=UserId(uuid4()), by=BY, now=world.now)
    world.settle()
    return world


def close(world: World) -> None:
    """Close the month that is soft-closed."""
    period = Period.of(world.now.replace(day=1) - timedelta(days=1))
    check = Check(name="trial-balance", title="Trial balance", passed=True, words="")
    closing.close_period(
        world.store, period, checks=[check], user_id=UserId(uuid4()), by=BY, now=world.now
    )
    world.settle()


def post(client: Client, world: World, path: str, **form: str) -> str:
    answer = client.post(f"/invoices/{path}", form, follow=False)
    world.settle()
    if answer.status_code == 302:
        answer = client.get(answer["Location"])
    return html(answer.content)


def issue(client: Client, world: World) -> str:
    period = Period.of(world.now.replace(day=1) - timedelta(days=1))
    return post(client, world, "issue", period=str(period))
