"""An account on credit whose month was invoiced to another organisation, in a founded market."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from ledger import commands, invoicing
from ledger.commands import closing
from ledger.commands.invoices import set_billing_details
from ledger.domain.ids import AccountId, HoldId, LeaseId, UserId
from ledger.domain.invoice_events import PartyDetails
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.models import ReceivableRow
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

HOURS = 7
MILLIS = HOURS * 3_600_000


def owe(world: World) -> ReceivableRow:
    """Let the consumer use seven hours on credit last month, and be invoiced for them."""
    tenant, somebody = world.tenant(CONSUMER), UserId(uuid4())
    period = Period.of(world.now.replace(day=1) - timedelta(days=1))
    start = period.window.starts_at
    account_id, hold_id = AccountId(uuid4()), HoldId(uuid4())
    commands.open_account(
        world.store,
        account_id=account_id,
        tenant_id=tenant,
        subscriber_id=None,
        kind="chargeback",
        title="On account",
        currency="USD",
        overdraft_nanos=500 * NANOS_PER_UNIT,
        by=BY,
        now=start,
    )
    set_billing_details(
        world.store,
        party_id=tenant,
        tenant_id=tenant,
        details=PartyDetails(name="Studio SARL", country="FR", email="ap@studio.example"),
        scheme="none",
        due_days=14,
        issues_by_itself=False,
        user_id=somebody,
        by=BY,
        now=start,
    )
    commands.place_hold(
        world.store,
        account_id=account_id,
        hold_id=hold_id,
        money=Money(100 * NANOS_PER_UNIT),
        purpose="bid:1",
        by=BY,
        now=start,
    )
    commands.capture_usage(
        world.store,
        account_id=account_id,
        hold_id=hold_id,
        lease_id=LeaseId(uuid4()),
        window=Window(start, start + timedelta(hours=HOURS)),
        gpu_millis=MILLIS,
        price=Rate(1_730_000_001),
        fee_ppm=80_000,
        owner_millis=((world.tenant(OWNER), MILLIS),),
        platform_id=world.tenant(PLATFORM),
        cost_centre="CI-2100",
        by=BY,
        now=start + timedelta(hours=HOURS),
    )
    closing.soft_close_period(world.store, period, user_id=somebody, by=BY, now=world.now)
    world.settle()
    invoicing.issue_month(world.store, period, user_id=somebody, by=BY, now=world.now)
    world.settle()
    return ReceivableRow.objects.get(account_id=account_id)
