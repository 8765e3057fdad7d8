"""The form of a bid, filled in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone


def form(**changed: Any) -> dict[str, Any]:
    """Return a bid for one of the world's GPUs as the browser sends it."""
    now = timezone.now()
    return {
        "token": str(uuid4()),
        "kind": "other",
        "gpu": "H100-80GB",
        "query": "",
        "gpus": "2",
        "placement": "same-host",
        "hours": "2",
        "limit": "2.50",
        "earliest_start": f"{now:%Y-%m-%dT%H:%M}",
        "deadline": f"{now + timedelta(hours=8):%Y-%m-%dT%H:%M}",
        "service_class": "on-demand",
        "patience": "immediate",
        "command": "python train.py",
        "cost_centre": "",
        **changed,
    }
