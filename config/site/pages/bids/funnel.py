"""How the funnel of a bid reads: each step that took GPUs away, with the bid's own figures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from config.site.parts.figures import duration_text, percent_ppm
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.placement.eligibility import REASONS, Explanation, Stage

CONSTRAINTS = {
    "listed": "GPUs on the market",
    "gpu-model": "of the models asked for",
    "memory": "with enough memory",
    "compute-capability": "with that compute capability",
    "compute-share": "with that share of a card",
    "driver": "with that driver",
    "nvlink": "joined by NVLink",
    "region": "in that region",
    "labels": "with those labels",
    "isolation": "isolated enough",
    "workload-kind": "whose owners allow this workload",
    "sandbox": "on hosts that keep work apart as you ask",
    "network": "on hosts from which work connects as you ask",
    "abilities": "on hosts whose agent can do what the work needs",
    "starts": "whose owners promise a start as soon as you ask",
    "availability": "whose owners promise the availability that you ask for",
    "currency": "in your currency",
    "host": "on hosts and of owners you take",
    "reliability": "that proved reliable enough",
    "paused": "not paused",
    "reserved": "not kept for another bid",
    "lease-minimum": "leased for as short as this",
    "windows": "with a window that is long enough",
    "taken": "not held by others then",
    "tenants": "without others' work on a host that cannot keep it apart",
    "limit": "within your limit",
    "own": "all your own, or all of others",
    "together": "free together at one time",
    "quota": "that the quota still lets you have",
    "limit-bid": "that one bid may have",
    "limit-user": "that your limit still lets you have",
    "limit-subscriber": "that your unit's limit lets you have",
    "limit-tenant": "that your organisation's limit lets you have",
    "not-allowed": "that your unit may lease",
}


def funnel_of(told: Explanation, gpus: int) -> dict[str, Any]:
    """Return the funnel without the steps that took nothing away, and what to do."""
    whole = told.funnel[0].left
    steps: list[dict[str, Any]] = []
    for stage in told.funnel:
        before = steps[-1]["left"] if steps else None
        if stage.left != before:
            steps.append(
                {
                    "text": _step_text(stage),
                    "left": stage.left,
                    "fewer": 0 if before is None else before - stage.left,
                    "stop": stage.left < gpus,
                }
            )
    return {
        "funnel": steps,
        "whole": whole,
        "wanted": gpus,
        "reason": REASONS.get(told.reason or "", ""),
        "arithmetic": told.told,
        "fits": told.reason is None,
        "price_needed": told.price_needed,
    }


def _step_text(stage: Stage) -> str:
    """Return how a step of the funnel reads, with the bid's own figures where it asks for some."""
    asked = read_query(stage.asked)
    match stage.constraint:
        case "notice":
            length = duration_text(timedelta(seconds=asked.notice_seconds_min or 0))
            return f"with the notice you ask for, at least {length}"
        case "reclaim":
            return f"with the pay on a reclaim you ask for, at least {_percent(asked)}"
        case "grace":
            length = duration_text(timedelta(seconds=asked.grace_seconds_min or 0))
            return f"with the grace you ask for, at least {length}"
        case constraint:
            return CONSTRAINTS.get(constraint, constraint)


def _percent(asked: GpuRequest) -> str:
    return percent_ppm(asked.reclaim_fee_ppm_min or 0)
