"""The form of an offer, filled in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from tests.pages.world import World


def wall(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def form(world: World, **changed: Any) -> dict[str, Any]:
    """Return an offer of two GPUs for eight hours to come, as the browser sends it."""
    starts = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return {
        "token": str(uuid4()),
        "host": str(world.host_id),
        "gpu": ["GPU-0", "GPU-1"],
        "starts_at": wall(starts),
        "ends_at": wall(starts + timedelta(hours=8)),
        "repeat": "",
        "floor": "1.95",
        "lease_min": "15",
        "notice": "10",
        "reclaim_fee": "10",
        "isolation": "whole",
        "workload_kinds": "",
        **changed,
    }
