"""What is asked of the policies of a market, by its kind, and how it becomes a policy.

The API's bodies and the forms of the site's pages have the same fields, and come here once they
are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from ledger.access import Actor
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.parties import MemberUnknown, SubscriberUnknown
from ledger.queries.parties import members, subscribers, unit_tenants
from listings.domain.permit_events import ListingAllowed
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    CountingSet,
    GuaranteePeriodSet,
    HalfLifeSet,
    LeastRunSet,
    LimitSet,
    QuotaOverridden,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
    UseAllowed,
)
from marketplace.domain.governance.dispatch import LeastRunMissing, Policy

Asked = Policy | ListingAllowed
"""What can be asked for: every policy of a market, and who may list on it."""


def policy_of(
    kind: str, asked: Mapping[str, Any], actor: Actor, *, market: str, currency: str, now: datetime
) -> Asked:
    """Return the policy that what was checked of a kind asks for.

    Raises: SubscriberUnknown, MemberUnknown; what is another's is as unknown as what is not.
    """
    about = {"market": market, "at": now, "why": asked["why"]}
    return MAKERS[kind](asked, actor, about, currency)


def _cohort(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return CohortPlaced(
        cohort=asked["cohort"],
        parent=asked.get("parent"),
        tenant_id=_tenant(asked.get("tenant_id")),
        **about,
    )


def _unit(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    unit = asked["subscriber_id"]
    tenant_id = unit_tenants(actor).get(unit)
    if tenant_id is None:
        raise SubscriberUnknown(subscriber_id=unit)
    return UnitPlaced(
        subscriber_id=SubscriberId(unit),
        tenant_id=TenantId(tenant_id),
        cohort=asked.get("cohort"),
        **about,
    )


def _figures(asked: Mapping[str, Any]) -> dict[str, Any]:
    names = ("nominal", "borrowing", "lending", "gpu_hours")
    return {name: asked.get(name) for name in names}


def _quota(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return QuotaSet(node=asked["node"], gpu_class=asked["gpu_class"], **_figures(asked), **about)


def _override(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return QuotaOverridden(
        override_id=asked.get("override_id") or uuid4(),
        node=asked["node"],
        gpu_class=asked["gpu_class"],
        starts_at=asked["starts_at"],
        ends_at=asked["ends_at"],
        request_id=None,
        **_figures(asked),
        **about,
    )


def _limit(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    subject, money = asked.get("subject"), asked.get("money")
    tenant_id = asked.get("tenant_id") if actor.sees_all else actor.tenant_id
    if not actor.sees_all:
        _need_own(asked["scope"], subject, actor)
    return LimitSet(
        scope=asked["scope"],
        subject=subject,
        tenant_id=_tenant(tenant_id),
        gpus=asked.get("gpus"),
        memory_mib=asked.get("memory_mib"),
        gpu_hours=asked.get("gpu_hours"),
        money=None if money is None else Money(money, asked.get("currency", currency)),
        period=asked["period"],
        **about,
    )


def _need_own(scope: str, subject: UUID | None, actor: Actor) -> None:
    if subject is None:
        return  # the rule refuses a limit of each
    if scope == "subscriber" and not subscribers(actor).filter(pk=subject).exists():
        raise SubscriberUnknown(subscriber_id=subject)
    if scope == "user" and not members(actor).filter(user_id=subject).exists():
        raise MemberUnknown(user_id=subject)


def _weight(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return ShareWeightSet(node=asked["node"], weight_ppm=asked["weight_ppm"], **about)


def _half_life(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return HalfLifeSet(seconds=asked["seconds"], **about)


def _period(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return GuaranteePeriodSet(seconds=asked["seconds"], starts_at=asked["starts_at"], **about)


def _least_run(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    seconds, lifted = asked.get("seconds"), bool(asked.get("lift"))
    if lifted == (seconds is not None):
        raise LeastRunMissing()
    return LeastRunSet(
        seconds=seconds or 0,
        gpu_class=asked.get("gpu_class"),
        lifted=lifted,
        firm=bool(asked.get("firm")),
        **about,
    )


def _counting(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return CountingSet(counts=asked["counts"], **about)


def _use(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return UseAllowed(
        who=asked.get("who"),
        gpu_class=asked["gpu_class"],
        what=asked["what"],
        allowed=asked["allowed"],
        **about,
    )


def _listing(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> ListingAllowed:
    return ListingAllowed(
        tenant_id=_tenant(asked.get("tenant_id")),
        gpu_class=asked["gpu_class"],
        allowed=asked["allowed"],
        **about,
    )


def _tenant(tenant_id: UUID | None) -> TenantId | None:
    return None if tenant_id is None else TenantId(tenant_id)


MAKERS: Mapping[str, Callable[[Mapping[str, Any], Actor, Any, str], Asked]] = {
    "cohort": _cohort,
    "unit": _unit,
    "quota": _quota,
    "override": _override,
    "limit": _limit,
    "weight": _weight,
    "half-life": _half_life,
    "period": _period,
    "least-run": _least_run,
    "counting": _counting,
    "use": _use,
    "listing": _listing,
}
