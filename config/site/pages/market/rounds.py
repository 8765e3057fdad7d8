"""What the engine decided, round by round: granted, refused and why, proved, and cleared again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.market.choosing import choice_of, market_of
from config.site.parts.charts import Level
from config.site.parts.figures import amount_text, gpu_hours_text
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.domain.placement.eligibility import REASONS
from marketplace.queries import market as queries
from marketplace.replay.curves import Curve
from marketplace.replay.round import replay_round
from marketplace.replay.under_other_rules import Came, Otherwise, clear_otherwise, read_rules

LIST_MAX = 50
GRANTS_MAX = 200
LANES = {"round": "Rounds", "instant": "At once"}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List rounds, newest first; `before` is where the last page ended."""
    actor_of(request)
    lane, market = request.GET.get("lane", ""), market_of(request)
    rows = queries.rounds(market, lane=lane if lane in LANES else None)
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) < 19:
        rows = rows.filter(position__lt=int(before))
    found = list(rows[: LIST_MAX + 1])
    context = {
        **choice_of(market, "/rounds", f"lane={lane}" if lane in LANES else ""),
        "rows": found[:LIST_MAX],
        "prices": queries.prices_of(found[:LIST_MAX]),
        "older": found[LIST_MAX - 1].position if len(found) > LIST_MAX else None,
        "lanes": LANES.items(),
        "lane": lane,
        "currency": settings.ENV.currency,
    }
    return page(request, "pages/rounds.html", context)


STAGES = {
    "dual": "Steps of price finding",
    "asked": "Bids asked in the last of these",
    "opened": "Steps towards first prices, like pools taken together",
    "limits": "Bids placed by their limits before time was up",
    "bounded": "Bids asked for the bound before time was up",
    "gains": "Bids placed by their gains before time was up",
    "rates": "Bids placed by their gains per GPU-hour before time was up",
    "search": "Moves of the search",
    "cooled": "Moves after which the search loses nothing any more",
    "exact": "Branches of the exact finish",
    "highs": "Version of HiGHS",
    "own": "Bids tried at home before time was up",
    "guaranteed": "Guaranteed bids tried before time was up",
    "room": "Bids that room was sought for before time was up",
    "sweep": "Bids of the last sweep before time was up",
}
"""What a certificate counts, in words for people."""

PRICES = {
    "market": "As the market does",
    "floor": "Floor",
    "midpoint": "Midpoint",
    "limit": "Pay as bid",
}
CUTS = {"yes": "As the market does", "no": "Never"}


@require_safe
def one(request: HttpRequest, round_id: UUID) -> HttpResponse:
    """Show one round, and what clearing it again gives."""
    actor_of(request)
    row = queries.round_of(round_id)
    grants = list(queries.trades_of(round_id)[: GRANTS_MAX + 1])
    replayed = replay_round(default_store(), market=row.market, round_id=round_id)
    currency = grants[0].currency if grants else settings.ENV.currency
    whole = request.GET.get("models") == "all"
    shown = [each for each in replayed.curves if whole or each.granted_gpus]
    context = {
        **choice_of(row.market, "/rounds"),
        "row": row,
        "paid": queries.prices_of([row])[row.round_id],
        "certificate": row.certified,
        "steps": _steps_of((row.certificate or {}).get("iterations", {})),
        "lane": LANES.get(row.lane, row.lane),
        "grants": grants[:GRANTS_MAX],
        "grants_max": GRANTS_MAX if len(grants) > GRANTS_MAX else None,
        "reasons": [(REASONS.get(name, name), count) for name, count in row.unmatched.items()],
        "waiting": row.bids - row.grants,
        "replayed": replayed,
        "curves": [_drawn(curve) for curve in shown],
        "quiet_models": [each.gpu_model for each in replayed.curves if not each.granted_gpus],
        "all_models": whole,
        "currency": currency,
        "prices": PRICES.items(),
        "cuts": CUTS.items(),
        "price": request.GET.get("price", "market"),
        "preemption": request.GET.get("preemption", "yes"),
    }
    if "price" not in request.GET:
        return page(request, "pages/round.html", context)
    try:
        rules = read_rules(context["price"], context["preemption"])
        found = clear_otherwise(default_store(), market=row.market, round_id=round_id, rules=rules)
    except Refusal as refusal:
        return page(request, "pages/round.html", context, refusal=refusal)
    context |= {"otherwise": found, "otherwise_lines": _side_by_side(found, currency)}
    return page(request, "pages/round.html", context)


def _side_by_side(found: Otherwise, currency: str) -> list[tuple[str, str, str, str]]:
    """Return name, note, and the figure as recorded and otherwise, for each line."""

    def money(nanos: int | None) -> str:
        return "\N{EN DASH}" if nanos is None else amount_text(nanos, currency)

    rows: tuple[tuple[str, str, Callable[[Came], str]], ...] = (
        ("Grants", "", lambda each: str(each.grants)),
        ("GPUs leased", "", lambda each: str(each.gpus)),
        ("GPU-hours", "", lambda each: gpu_hours_text(each.gpu_millis)),
        ("Mean price", "per GPU-h", lambda each: money(each.price_nanos)),
        ("Welfare", "limits less floors", lambda each: money(each.welfare_nanos)),
        ("Bidders gain", "limits less prices", lambda each: money(each.bidders_nanos)),
        ("Owners gain", "prices less floors", lambda each: money(each.owners_nanos)),
        ("Interruptions", "leases cut for others", lambda each: str(each.interrupted)),
    )
    return [(name, note, read(found.recorded), read(found.otherwise)) for name, note, read in rows]


def _steps_of(iterations: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return a certificate's steps: what they are, of which bids (none: of all), how many."""
    found = []
    for name, count in iterations.items():
        part, _, stage = name.rpartition(" ")
        found.append((STAGES.get(stage, stage), part.replace("-", " "), count))
    return found


def _drawn(curve: Curve) -> dict[str, Any]:
    supply = [Level(each.price_nanos, each.gpus) for each in curve.supply]
    demand = [Level(each.price_nanos, each.gpus) for each in curve.demand]
    return {
        "curve": curve,
        "supply": supply,
        "demand": demand,
        "supply_table": _table(supply),
        "demand_table": _table(demand),
        "label": _told(curve),
    }


def _table(levels: list[Level]) -> list[tuple[int, int, int]]:
    """Return price, GPUs at it, and GPUs up to it, for each level."""
    totals = accumulate(level.gpus for level in levels)
    return [
        (level.nanos_per_gpu_hour, level.gpus, total)
        for level, total in zip(levels, totals, strict=True)
    ]


def _told(curve: Curve) -> str:
    """Say what the picture shows to those who cannot see it."""
    said = [f"{curve.gpu_model} supply and demand."]
    for name, what, levels in (
        ("Supply", "at floors", curve.supply),
        ("Demand", "at limits", curve.demand),
    ):
        gpus = sum(level.gpus for level in levels)
        if gpus:
            first, last = (
                amount_text(level.price_nanos, curve.currency, exact=True)
                for level in (levels[0], levels[-1])
            )
            said.append(f"{name}: {gpus} GPUs {what} from {first} to {last}.")
        else:
            said.append(f"{name}: none.")
    if curve.mean_nanos is not None:
        paid = amount_text(curve.mean_nanos, curve.currency, exact=True)
        said.append(f"Paid on average: {paid} per GPU-hour.")
    return " ".join(said)
