"""What owners promised a lease of their service, and what came of it, for its page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from config.site.parts.promised import promised_of
from marketplace.models.leases import LeaseRow


def sla_of_lease(row: LeaseRow) -> dict[str, Any] | None:
    """Return the promises, each once, and a result for each host; None: nothing was promised."""
    if row.sla is None:
        return None
    promised = [each for part in row.sla["parts"] for each in promised_of(part["terms"])]
    results = [
        each
        | {
            "late": _length(each["late_seconds"]),
            "available": _length(each["available_seconds"]),
            "agreed": _length(each["agreed_seconds"]),
        }
        for each in row.sla.get("results", ())
    ]
    return {"promised": list(dict.fromkeys(promised)), "results": results}


def _length(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
