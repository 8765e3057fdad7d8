"""What comes of other rules, as tables: figures side by side, and who wins and who loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpRequest

from config.site.pages.policies.choices import SHOWN_MAX
from config.site.parts.figures import amount_text, duration_text, gpu_hours_text
from ledger.access import Actor
from ledger.queries.parties import tenants, unit_titles
from marketplace.lab.comparing import Comparison
from marketplace.lab.figures import Figures
from marketplace.lab.parties import Party, Swing

PPM_PER_PERCENT = 10_000
NONE = "\N{EN DASH}"
PARTIES_MAX = 40
FARES = {"wins": "wins", "loses": "loses", "same": "as before"}
Reads = Callable[[Figures], int | None]


def lines_of(found: Comparison, currency: str) -> list[dict[str, Any]]:
    """Return the table: for each figure its name, the three values, and the change in per cent."""

    def money(value: int) -> str:
        return amount_text(value, currency)

    rows: tuple[tuple[str, str, Reads, Callable[[int], str]], ...] = (
        ("Bids", "that came", lambda each: each.bids, str),
        ("Grants", "", lambda each: each.grants, str),
        ("GPU-hours leased", "", lambda each: each.gpu_millis, gpu_hours_text),
        ("Utilisation", "of local GPU-time on offer", lambda each: each.utilisation_ppm, _percent),
        ("Welfare", "limits less floors", lambda each: each.welfare_nanos, money),
        ("Owners earn", "after the fee", lambda each: each.owners_nanos, money),
        ("Consumers gain", "limits less prices", lambda each: each.surplus_nanos, money),
        ("Platform fee", "", lambda each: each.fee_nanos, money),
        ("Mean wait", "from wanted to start", lambda each: each.wait_mean_seconds, _seconds),
        ("95th percentile of waits", "", lambda each: each.wait_p95_seconds, _seconds),
        ("Jain\u2019s index", "of the share each tenant got", lambda each: each.jain_ppm, _index),
        (
            "Jain\u2019s index of cohorts",
            "of what each got of its part by weight",
            lambda each: each.jain_cohorts_ppm,
            _index,
        ),
        ("Interruptions", "leases cut for others", lambda each: each.interrupted, str),
        ("Spent on bursting", "", lambda each: each.burst_nanos, money),
    )
    return [
        {
            "name": name,
            "note": note,
            "recorded": _shown(reads(found.recorded), write),
            "again": _shown(reads(found.again), write),
            "variant": _shown(reads(found.variant), write),
            "change": _change(reads(found.again), reads(found.variant)),
        }
        for name, note, reads, write in rows
    ]


def result_of(
    found: Comparison, actor: Actor, currency: str, other: str = "Other rules"
) -> dict[str, Any]:
    """Return what `parts/lab_result.html` shows. other: how the column of the variant is called."""
    return {
        "result": {
            "title": "What comes of it" if other == "Other rules" else "On the past",
            "other": other,
            "found": found,
            "lines": lines_of(found, currency),
            "sides": sides_of(found, actor, currency),
        }
    }


def running_of(request: HttpRequest) -> dict[str, Any]:
    """Return what `parts/lab_run.html` shows before the run: the page has it run by its socket."""
    address = f"{request.path}?{request.GET.urlencode()}&wait=1"
    return {"running": request.path, "wait_href": address}


def sides_of(found: Comparison, actor: Actor, currency: str) -> list[dict[str, Any]]:
    """Return who wins and who loses, business units and owners apart; most at stake first."""
    units = {str(unit): title for unit, title in unit_titles(actor).items()}
    owners = {str(row.tenant_id): row.title for row in tenants(actor)[:SHOWN_MAX]}
    return [
        _side(found, "consumer", "Business units", "gain", units, currency),
        _side(found, "owner", "Owners", "earn", owners, currency),
    ]


def _side(
    found: Comparison,
    side: str,
    title: str,
    verb: str,
    titles: Mapping[str, str],
    currency: str,
) -> dict[str, Any]:
    of_side = [each for each in found.parties if each.side == side]
    return {
        "side": side,
        "title": title,
        "verb": verb,
        "wins": sum(each.fares == "wins" for each in of_side),
        "loses": sum(each.fares == "loses" for each in of_side),
        "same": sum(each.fares == "same" for each in of_side),
        "rows": [_swing(each, titles, currency) for each in of_side[:PARTIES_MAX]],
        "more": max(0, len(of_side) - PARTIES_MAX),
    }


def _swing(swing: Swing, titles: Mapping[str, str], currency: str) -> dict[str, Any]:
    before, after = swing.before, swing.after
    return {
        "title": titles.get(swing.who, swing.who),
        "fares": swing.fares,
        "said": FARES[swing.fares],
        "bids": after.bids,
        "grants": (before.grants, after.grants),
        "gpu_hours": (gpu_hours_text(before.gpu_millis), gpu_hours_text(after.gpu_millis)),
        "wait": (_wait(before), _wait(after)),
        "money": (amount_text(before.nanos, currency), amount_text(after.nanos, currency)),
        "change": _change(before.nanos, after.nanos),
    }


def _wait(party: Party) -> str:
    return _shown(party.wait_mean_seconds, _seconds)


def _seconds(value: int) -> str:
    return duration_text(timedelta(seconds=value))


def _shown(value: int | None, write: Callable[[int], str]) -> str:
    return NONE if value is None else write(value)


def _percent(ppm: int) -> str:
    return f"{ppm / PPM_PER_PERCENT:.1f}%"


def _index(ppm: int) -> str:
    return f"{ppm / 1_000_000:.3f}"


def _change(before: int | None, after: int | None) -> str:
    if before == after:
        return "="
    if not before or after is None:
        return NONE
    change = (after - before) * 1000 // abs(before) / 10
    sign = "+" if change >= 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(change):.1f}%"
