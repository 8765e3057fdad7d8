"""What policies would change, as tables: bids, leases, queues, and what would be refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from marketplace.domain.placement.eligibility import REASONS
from marketplace.trials.on_the_book import ADMITTED, Trial
from marketplace.trials.on_the_past import Fate, Hindsight, Kind

STANDS = {
    ADMITTED: "let through",
    "nominal": "within nominal quota",
    "borrowed": "borrowed",
    "refused": "over quota: it stays, nothing like it would come",
    "free": "no quota speaks of it",
}
FATES: Mapping[Fate, str] = {
    "allowed": "allowed",
    "fewer-models": "some of its models only",
    "needs-approval": "after an approval only",
    "refused": "refused",
}
KINDS: Mapping[Kind, tuple[str, str]] = {
    "offer": ("Offers", "that came or stand on the market"),
    "bid": ("Bids", "that came or wait"),
    "lease": ("Leases", "that were granted or run"),
}
PATHS: Mapping[Kind, str] = {"offer": "/offers", "bid": "/bids", "lease": "/leases"}
NONE = "\N{EN DASH}"
JUDGED_MAX = 50


def trial_shown(trial: Trial, titles: Mapping[str, str]) -> dict[str, Any]:
    """Return the changes of bids and leases, and the queues before and after."""
    changes = [
        {
            "what": f"Bid {str(each.bid_id)[:8]}",
            "href": f"/bids/{each.bid_id}",
            "title": titles.get(each.unit, each.unit),
            "gpus": each.gpus,
            "before": _stands(each.before),
            "after": _stands(each.after),
        }
        for each in trial.bid_changes
    ] + [
        {
            "what": f"Lease {str(each.lease_id)[:8]}",
            "href": f"/leases/{each.lease_id}",
            "title": titles.get(each.unit, each.unit),
            "gpus": f"{each.gpus} {each.gpu_class}",
            "before": _stands(each.before),
            "after": _stands(each.after),
        }
        for each in trial.lease_changes
    ]
    changes += [
        {
            "what": f"Lease {str(each.lease_id)[:8]}",
            "href": f"/leases/{each.lease_id}",
            "title": titles.get(each.unit, each.unit),
            "gpus": each.gpus,
            "before": _undisturbed(each.before),
            "after": _undisturbed(each.after),
        }
        for each in trial.run_changes
    ]
    queues = [
        {
            "title": titles.get(each.unit, each.unit),
            "place_before": each.place_before or NONE,
            "place_after": each.place_after,
            "share_before": _share(each.share_before),
            "share_after": _share(each.share_after),
            "available_before": _available(each.available_before),
            "available_after": _available(each.available_after),
        }
        for each in trial.queues
    ]
    cohorts = [
        {
            "title": each.cohort,
            "turn_before": each.turn_before or NONE,
            "turn_after": each.turn_after or NONE,
            "share_before": _share(each.share_before) if each.turn_before else NONE,
            "share_after": _share(each.share_after) if each.turn_after else NONE,
        }
        for each in trial.cohorts
    ]
    return {"trial": trial, "changes": changes, "queues": queues, "cohorts": cohorts}


def past_shown(past: Hindsight, names: Mapping[str, str]) -> dict[str, Any]:
    """Return what permissions would have refused: counted, and one by one."""
    fates: tuple[Fate, ...] = ("refused", "needs-approval", "fewer-models", "allowed")
    counted = [
        {
            "title": title,
            "note": note,
            "looked": past.looked[kind],
            "fates": [past.number(kind, fate) for fate in fates],
        }
        for kind, (title, note) in KINDS.items()
    ]
    judged = [
        {
            "what": f"{each.kind.capitalize()} {str(each.id)[:8]}",
            "href": f"{PATHS[each.kind]}/{each.id}",
            "who": names.get(each.who, each.who),
            "gpus": f"{each.gpus} × {', '.join(each.gpu_models[:3])}"
            + (f" and {len(each.gpu_models) - 3} more" if len(each.gpu_models) > 3 else ""),
            "at": each.at,
            "before": FATES[each.before],
            "after": FATES[each.after],
        }
        for each in past.changes[:JUDGED_MAX]
    ]
    return {
        "hindsight": past,
        "counted": counted,
        "judged": judged,
        "judged_more": max(0, len(past.changes) - JUDGED_MAX),
    }


def _stands(name: str) -> str:
    return STANDS.get(name) or REASONS.get(name, name)


def _undisturbed(until: datetime | None) -> str:
    if until is None:
        return "other bids may interrupt it"
    return f"undisturbed until {timezone.localtime(until):%a %-d %b %H:%M}"


def _share(share: float | None) -> str:
    return NONE if share is None else f"{share:.4g}"


def _available(gpus: Mapping[str, float]) -> str:
    return ", ".join(f"{count} {name}" for name, count in gpus.items()) or "not bound"
