"""Policies put in force for a page, and the shares it shows."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from django.conf import settings
from django.test import Client

from ledger.domain.ids import SubscriberId
from ledger.eventstore.port import Meta
from marketplace.commands.quotas import set_policy
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    HalfLifeSet,
    LimitSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import Policy
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

BY = Meta(actor="user:olivia")


OTHER = SubscriberId(uuid4())


def govern(world: World) -> None:
    """Put the consumer's unit and one of the owner's into a cohort with quotas and limits."""
    market, at = settings.ENV.market, datetime.now(UTC)
    setter = Setter(world.tenant(PLATFORM), True)
    unit = str(world.unit_id)
    policies: list[Policy] = [
        CohortPlaced(market=market, cohort="research", parent=None, tenant_id=None, at=at),
        UnitPlaced(
            market=market,
            subscriber_id=world.unit_id,
            tenant_id=world.tenant(CONSUMER),
            cohort="research",
            at=at,
        ),
        UnitPlaced(
            market=market,
            subscriber_id=OTHER,
            tenant_id=world.tenant(OWNER),
            cohort="research",
            at=at,
        ),
        QuotaSet(
            market=market,
            node=unit,
            gpu_class="H100",
            nominal=1,
            borrowing=3,
            lending=None,
            gpu_hours=40,
            at=at,
            why="their own machines",
        ),
        QuotaSet(
            market=market,
            node=str(OTHER),
            gpu_class="H100",
            nominal=3,
            borrowing=None,
            lending=0,
            at=at,
        ),
        ShareWeightSet(market=market, node=unit, weight_ppm=3_000_000, at=at),
        HalfLifeSet(market=market, seconds=86_400, at=at),
        LimitSet(
            market=market,
            scope="user",
            subject=None,
            tenant_id=None,
            gpus=4,
            memory_mib=None,
            gpu_hours=100,
            money=None,
            period="week",
            at=at,
        ),
    ]
    for policy in policies:
        set_policy(world.store, policy=policy, setter=setter, by=BY)
    world.settle()


def shown(client: Client, path: str = "/fairness") -> str:
    return text(client.get(path).content)
