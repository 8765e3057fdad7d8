"""How the platform runs: clearing rounds, followers and their lag, agents, the event store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.models import LoopRun
from config.operations.health import findings, warnings
from config.operations.measuring import lateness, loop_runs, queues, requests_of_this_process
from config.site.forms.answers import page
from config.site.pages.market.choosing import choice_of, market_of
from ledger.access import PlatformOnly
from ledger.access.visits import actor_of
from ledger.eventstore import default_store
from ledger.following import lag, last_moves
from marketplace.domain.placement.eligibility import REASONS
from marketplace.queries.market import prices_of, rounds
from metering.queries import usage

ROUNDS_MAX = 40
ALARMS_MAX = 20
LATE_SECONDS = 10


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show it all on one page."""
    actor = actor_of(request)
    if not actor.sees_all:
        raise PlatformOnly()
    now = timezone.now()
    store = default_store()
    moved = last_moves()
    market = market_of(request)
    recent = list(rounds(market)[:ROUNDS_MAX])
    paid = prices_of(recent)
    context = {
        **choice_of(market, "/ops"),
        "head": store.head(),
        "store": type(store).__name__,
        "followers": [
            {
                "name": each.name,
                "behind": round(each.seconds),
                "error": each.error,
                "moved_at": moved.get(each.name),
            }
            for each in lag(store, now=timezone.now())
        ],
        "findings": [each for each in (*findings(), *warnings()) if not each.ok],
        "loops": [_loop(row, now) for row in loop_runs()],
        "requests": requests_of_this_process(),
        "queues": queues(),
        "rounds": [
            {
                "row": row,
                "paid": paid[row.round_id],
                "unmatched": [
                    (REASONS.get(name, name), count) for name, count in row.unmatched.items()
                ],
                "left": row.bids - row.grants,
            }
            for row in recent
        ],
        "bids": sum(row.bids for row in recent),
        "grants": sum(row.grants for row in recent),
        "currency": settings.ENV.currency,
        "agents": usage.agents(actor, now=now, poll_seconds=settings.ENV.agent_poll_seconds),
        "alarms": usage.alarms(actor)[:ALARMS_MAX],
    }
    return page(request, "pages/ops.html", context)


def _loop(row: LoopRun, now: datetime) -> dict[str, Any]:
    """Return how a loop is doing: its last good pass, how late that is, what stands in its way."""
    late = lateness(row, now)
    state = "stopped" if row.error else "late" if late > LATE_SECONDS else "healthy"
    return {"row": row, "state": state, "late": round(late)}
