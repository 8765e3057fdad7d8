"""Quotas and fair shares: who has how much, who uses it, who goes first and by which figures."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.market.choosing import choice_of, market_of
from config.site.pages.policies.choices import SHOWN_MAX
from config.site.pages.policies.sentences import policy_text
from config.site.parts.charts import quota_bar, share_bar
from config.site.parts.figures import amount_text, gpu_hours_text
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.parties import people, tenants, unit_titles
from marketplace.domain.quotas.fair_share_order import FairShare
from marketplace.fairness.levels import Level, Named
from marketplace.fairness.standings import (
    LimitFigures,
    NodeFigures,
    Place,
    Shares,
    full_memory,
    shares_at,
    shares_now,
)
from marketplace.models.quotas import PolicyRow
from marketplace.queries.market import round_of
from marketplace.queries.quota_log import policy_rows

LOG_LINES, LOG_LINES_MAX = 30, 1_000
MIB_PER_GIB = 1024
SCOPES = {
    "bid": "One bid",
    "user": "Person",
    "subscriber": "Business unit",
    "tenant": "Organisation",
}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show them as of now or, with `round`, as they were when the engine decided that round."""
    actor = actor_of(request)
    market, asked = market_of(request), _round_of(request)
    try:
        market = market if asked is None else round_of(asked).market
        found = (
            shares_now(default_store(), actor, market=market, now=timezone.now())
            if asked is None
            else shares_at(default_store(), actor, market=market, round_id=asked)
        )
    except Refusal as refusal:
        nothing = {"shares": None, **choice_of(market, "/fairness")}
        return page(request, "pages/fairness.html", nothing, refusal=refusal)
    titles = _titles(actor)
    context: dict[str, Any] = {
        **choice_of(market, "/fairness"),
        "shares": found,
        "round_id": asked,
        "governs": actor.sees_all,
        "tries": actor.sees_all or "operator" in actor.roles,
    }
    if found is not None:
        context |= {
            "classes": [
                {"gpu_class": each.gpu_class, "queues": _queues(each.nodes, titles)}
                for each in found.classes
            ],
            "order": _order(found, titles),
            "limits": [_limit(each, titles) for each in found.limits],
            "half_life": timedelta(seconds=found.half_life_seconds),
        }
    context |= _log(actor, market, titles, whole="log" in request.GET)
    return page(request, "pages/fairness.html", context)


def _round_of(request: HttpRequest) -> UUID | None:
    try:
        return UUID(request.GET.get("round", ""))
    except ValueError:
        return None


def _titles(actor: Actor) -> dict[str, str]:
    return {str(unit): title for unit, title in unit_titles(actor).items()}


def _queues(nodes: Iterable[NodeFigures], titles: dict[str, str]) -> list[dict[str, Any]]:
    nodes = list(nodes)
    limits = [
        None if each.quota.borrowing is None else each.total + each.quota.borrowing
        for each in nodes
    ]
    used = [each.pool if each.is_cohort else each.used for each in nodes]
    longest = [*used, *(each.total for each in nodes), *(each or 0 for each in limits)]
    most = max(longest, default=0)
    return [
        {
            "node": node,
            "title": titles.get(node.node, node.node),
            "indent": f"d{min(node.depth, 3)}",
            "said": _said(node, gpus),
            "bar": quota_bar(
                used=gpus,
                total=node.total,
                borrowed=node.borrowed,
                lent=node.lent,
                most=most,
                limit=limit,
            ),
        }
        for node, gpus, limit in zip(nodes, used, limits, strict=True)
    ]


def _said(node: NodeFigures, used: float) -> str:
    """Write a queue's figures as people read them; what is the same for most is said once, below.

    Not set and 0 are two things: a limit of 0 is said, none is not.
    """
    quota = node.quota
    parts = [
        f"{used} of {node.total} GPUs used"
        if not node.is_cohort
        else f"{used} of {node.total} of its pool used"
    ]
    if quota.nominal is not None and quota.nominal != node.total:
        parts.append(f"nominal {quota.nominal}")
    if quota.nominal is None and not node.is_cohort:
        parts.append("no quota of its own")
    if node.borrowed:
        parts.append(f"{node.borrowed} borrowed")
    if node.lent:
        parts.append(f"up to {node.lent} lent")
    if quota.borrowing is not None:
        parts.append(f"borrows at most {quota.borrowing}")
    if quota.lending is not None:
        parts.append(f"lends at most {quota.lending}")
    if node.is_cohort:
        parts.insert(1, f"{node.used} used in all")
    if quota.gpu_hours is not None:
        used_hours = gpu_hours_text(node.hours_used)
        parts.append(f"{used_hours} of {quota.gpu_hours} guaranteed GPU-hours used")
    return " · ".join(parts)


def _order(found: Shares, titles: dict[str, str]) -> list[dict[str, Any]]:
    """Return a line for each unit and cohort in the order in which they come."""
    most = max((max(each.share.fraction, each.entitled) for each in found.levels), default=0.0)
    places = {each.share.node: each for each in found.places}
    told = {(each.before.one, each.before.other) for each in found.places if each.before}

    def named(node: str) -> str:
        return titles.get(node, found.named(node))

    return [
        {
            "level": each,
            "place": (place := places.get(each.node)),
            "title": named(each.node),
            "indent": f"d{min(each.depth, 3)}",
            "remembered": f"{each.share.gpu_millis / MILLIS_PER_HOUR:,.2f}",
            "whole": _whole(found, each.share),
            "weight": f"{each.share.weight_ppm / 1_000_000:g}",
            "share": _share(each.share),
            "bar": share_bar(fraction=each.share.fraction, entitled=each.entitled, most=most),
            "before": _before(each, place, told, named),
        }
        for each in found.levels
    ]


def _before(
    level: Level, place: Place | None, told: set[tuple[FairShare, FairShare]], named: Named
) -> str:
    """Say why a unit comes before the next one, or a cohort where no unit in it says so."""
    parting = level.next if place is None else place.before
    if parting is None or (place is None and (parting.one, parting.other) in told):
        return ""
    return parting.told(named)


def _whole(found: Shares, share: FairShare) -> str:
    capacity = found.capacity.get(share.dominant, 0)
    return f"{full_memory(capacity, found.half_life_seconds):,.0f}" if capacity else "\N{EN DASH}"


def _share(share: FairShare) -> str:
    return "goes last" if share.weight_ppm <= 0 else f"{share.share:.4g}"


def _limit(found: LimitFigures, titles: dict[str, str]) -> dict[str, Any]:
    limit, used = found.limit, found.used
    lines: list[tuple[str, str, str]] = []
    if limit.gpus is not None:
        lines.append(("GPUs at once", "" if used is None else f"{used.gpus}", f"{limit.gpus}"))
    if limit.memory_mib is not None:
        has = "" if used is None else f"{used.memory_mib / MIB_PER_GIB:g}"
        lines.append(("GiB of memory at once", has, f"{limit.memory_mib / MIB_PER_GIB:g}"))
    period = "" if limit.scope == "bid" else f" in each {limit.period}"
    if limit.gpu_hours is not None:
        has_hours = "" if used is None else gpu_hours_text(used.gpu_millis)
        lines.append((f"GPU-hours{period}", has_hours, f"{limit.gpu_hours}"))
    if limit.money is not None:
        currency = limit.money.currency
        spent = "" if used is None else amount_text(used.money, currency)
        lines.append((f"Money{period}", spent, amount_text(limit.money.nanos, currency)))
    whose = "each" if limit.subject is None else titles.get(str(limit.subject), str(limit.subject))
    return {"scope": SCOPES[limit.scope], "whose": whose, "lines": lines}


def _log(actor: Actor, market: str, titles: dict[str, str], *, whole: bool) -> dict[str, Any]:
    """Return the lines of the log: the newest of them, or as many as a page has."""
    rows = list(policy_rows(actor, market)[: LOG_LINES_MAX if whole else LOG_LINES + 1])
    more, rows = len(rows) > LOG_LINES and not whole, rows if whole else rows[:LOG_LINES]
    known = {str(key): person.title for key, person in people(_persons(rows)).items()}
    owners = {str(row.tenant_id): row.title for row in tenants(actor)[:SHOWN_MAX]}
    named = {**known, **owners, **titles}
    lines = [
        {
            "row": row,
            "said": policy_text(row.kind, row.policy, named),
            "who": known.get(row.actor.removeprefix("user:"), row.actor),
        }
        for row in rows
    ]
    return {"log": lines, "log_more": more}


def _persons(rows: Iterable[PolicyRow]) -> set[UUID]:
    """Return who set policies, and the people whom limits are about."""
    found = set()
    for row in rows:
        kind, _, key = row.actor.partition(":")
        about = row.policy.get("subject") if row.policy.get("scope") == "user" else None
        for each in ((key if kind == "user" else ""), about or ""):
            with suppress(ValueError):
                found.add(UUID(str(each)))
    return found
