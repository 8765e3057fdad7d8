"""How idle a lease is, on its page: the sum that decides, keeping it, and its bid's rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.parts.idle import MEBIBYTE, THOUSAND, minutes_field
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases as queries
from marketplace.queries.idle import running
from metering.domain.idle_events import IdleTerms
from metering.idling import keep_idle_lease, set_idle_rule
from metering.queries.idle import idleness_of, rules_of


class RuleForm(forms.Form):
    """After how many idle minutes the leases of a bid are released; empty: never."""

    minutes = minutes_field("Minutes")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the sum: what was measured last, and below what it must be."""

    name: str
    now: str
    most: str
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """What the page shows. of: whose rule holds. figures: none where it does not run.

    release_at: of the warning that holds.
    """

    after: timedelta | None
    of: str
    own_minutes: int | None
    figures: tuple[Figure, ...] = ()
    idle: timedelta = timedelta()
    release_at: datetime | None = None
    is_known: bool = False


def idle_of(actor: Actor, row: LeaseRow, now: datetime) -> Idle | None:
    """Return how idle a lease is; None where there is no rule, and nobody here sets one."""
    rules = rules_of(running(row))
    own = rules.get("bid")
    mine = row.tenant_id == actor.tenant_id and actor.may("bids:write")
    minutes = None if own is None else own.after_seconds // 60
    found = idleness_of(running(row), now=now)
    if found is None:
        open_still = row.state in ("scheduled", "starting", "active") and mine
        after = None if own is None else timedelta(seconds=own.after_seconds)
        return Idle(after=after, of="bid", own_minutes=minutes) if open_still else None
    terms = found.terms
    return Idle(
        after=timedelta(seconds=terms.after_seconds),
        of="bid" if terms == own else "tenant",
        own_minutes=minutes,
        figures=_figures(found.quiet.figures, terms),
        idle=found.idle,
        release_at=found.ends_at,
        is_known=found.measured_through is not None,
    )


def _figures(now: object, terms: IdleTerms) -> tuple[Figure, ...]:
    def figure(name: str, field: str, scale: int, digits: int, unit: str) -> Figure:
        value, most = getattr(now, field), getattr(terms, field)
        said = "not measured" if value is None else f"{value / scale:.{digits}f} {unit}"
        below = f"{most / scale:.{digits}f} {unit}"
        return Figure(name, said, below, value is not None and value < most)

    return (
        figure("GPU busy", "busy_percent", 1, 0, "%"),
        figure("Processor", "cpu_millicores", THOUSAND, 2, "cores"),
        figure("Disk", "disk_bytes", MEBIBYTE, 2, "MiB/s"),
        figure("Network", "network_bytes", MEBIBYTE, 2, "MiB/s"),
    )


@require_POST
def keep(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Let the idle time of a lease count anew."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    row = queries.consumed_lease(actor, lease_id)
    address = f"/leases/{lease_id}"
    try:
        position = keep_idle_lease(
            default_store(),
            lease_id=LeaseId(lease_id),
            tenant_id=actor.tenant_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        messages.error(request, refusal.message())
        return redirect(address)
    assert row.tenant_id == actor.tenant_id
    return done(request, address, position, "Kept. Its idle time counts anew from now on.")


@require_POST
def rule(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Set after how many idle minutes the leases of this one's bid are released."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    row = queries.consumed_lease(actor, lease_id)
    address, form = f"/leases/{lease_id}", RuleForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Say a whole number of minutes from 5 to 720, or leave it empty.")
        return redirect(address)
    minutes = form.cleaned_data["minutes"]
    position = set_idle_rule(
        default_store(),
        rule_id=row.bid_id,
        of="bid",
        tenant_id=actor.tenant_id,
        terms=None if minutes is None else IdleTerms(after_seconds=minutes * 60),
        by=meta_of(actor),
        now=timezone.now(),
    )
    never = "Leases of this bid are not ended for idleness by its own rule."
    said = never if minutes is None else f"Ended after {minutes} idle minutes and a warning."
    return done(request, address, position, said)
