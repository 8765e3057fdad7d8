"""An earlier bid as the form of a new one shows it: to run the same again, or nearly the same."""

from __future__ import annotations

import shlex
from collections.abc import Container
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ledger.domain.money import Money, Rate
from marketplace.domain.bids.query_language import read_query, write_query
from marketplace.models.bids import BidRow


def again(row: BidRow, *, models: Container[str]) -> dict[str, Any]:
    """Return what the form's fields hold: all but its times.

    models: those that the form lets choose; others stand among the conditions.
    """
    request = read_query(row.query)
    model = request.models[0] if len(request.models) == 1 and request.models[0] in models else ""
    if model:
        request = replace(request, models=())
    network = request.network or ""
    budget = row.budget_nanos
    shortest, saves = row.duration_min_seconds, row.checkpoint_seconds
    idle = row.end_when_idle_seconds
    return {
        "kind": row.workload_kind,
        "gpu": model,
        "query": write_query(replace(request, network=None)),
        "network": network,
        "gpus": row.gpus,
        "gpus_min": row.gpus_min,
        "placement": row.placement,
        "hours": timedelta(seconds=row.duration_seconds),
        "hours_min": None if shortest is None else timedelta(seconds=shortest),
        "limit": Rate(row.limit_nanos_per_gpu_hour, row.currency),
        "budget": None if budget is None else Money(budget, row.currency),
        "service_class": row.service_class,
        "patience": "soonest" if row.seeks == "soonest" else row.patience,
        "burst_allowed": row.burst_allowed,
        "resume": row.resume,
        "pausable": row.pausable,
        "saves_minutes": saves and saves // 60,
        "idle_minutes": idle and idle // 60,
        "project": row.project,
        "command": shlex.join(row.command),
        "image": row.image,
        "inputs": row.inputs or "",
        "fetch": row.fetch,
        "fetch_secret": row.fetch_secret,
        "outputs": shlex.join(row.outputs),
        "volumes": " ".join(
            f"{each['name']}:{each['path']}{'' if each['writable'] else ':ro'}"
            for each in row.volumes
        ),
        "secrets": row.secrets,
        "secret_variables": bool(row.secret_variables),
        "unit": str(row.subscriber_id),
        "cost_centre": row.cost_centre,
    }
