"""Policies as people read them: one line for each, names in place of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from config.figures import amount_text, duration_text
from ledger.domain.event import Event
from ledger.domain.money import Money

LEFT_OUT = {"market", "at", "why", "request_id", "override_id", "tenant_id", "user_id", "token_id"}
FIGURES = ("nominal", "borrowing", "lending", "gpu_hours")
"""Of a quota. Not set and 0 are two things, so both are said."""
NOT_SET = "not set"
FIRST = (
    "node", "subscriber_id", "cohort", "who", "scope", "subject", "what", "gpu_class", "allowed",
    *FIGURES,
)  # fmt: skip
"""What is said first, in this order; whom or what a policy is about before its figures."""
PPM = 1_000_000


def policy_text(kind: str, policy: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Write a policy in one line: its kind, and what it says, without what a table says."""
    if "allowed" in policy:
        who = policy.get("who") or policy.get("tenant_id")
        name = titles.get(str(who), str(who)) if who else "Everybody else"
        may = "may" if policy["allowed"] else "may not"
        return f"{name} {may} {policy.get('what', 'list')} {policy['gpu_class']}"
    is_quota = kind in ("quota-set", "quota-overridden")
    said = {
        name: titles.get(str(value), value)
        for name, value in sorted(policy.items(), key=_order)
        if name not in LEFT_OUT and (value not in (None, "") or (is_quota and name in FIGURES))
    }
    if "weight_ppm" in said:
        said["weight"] = f"{int(said.pop('weight_ppm')) / PPM:g}"
    words = ", ".join(
        f"{name.replace('_', ' ')} {_value(name, each)}" for name, each in said.items()
    )
    return f"{kind.replace('-', ' ').capitalize()}: {words}"


def event_text(event: Event, titles: Mapping[str, str]) -> str:
    """Write a policy that is about to be set."""
    policy = {each.name: getattr(event, each.name) for each in fields(event)}  # type: ignore[arg-type]  # every event is a dataclass
    return policy_text(event.name.partition(".")[2], policy, titles)


def _order(named: tuple[str, Any]) -> tuple[int, str]:
    name = named[0]
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def _value(name: str, value: Any) -> str:
    if value is None:
        return NOT_SET
    if name == "seconds":
        return duration_text(timedelta(seconds=int(value)))
    if isinstance(value, Money):
        return amount_text(value.nanos, value.currency)
    if isinstance(value, dict) and {"nanos", "currency"} <= set(value):
        return amount_text(int(value["nanos"]), str(value["currency"]))
    if name.endswith("_at"):
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return f"{timezone.localtime(at):%a %-d %b %H:%M %Z}"
    return str(value)
