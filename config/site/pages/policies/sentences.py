"""Policies as people read them: one sentence for each, names in place of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from config.site.parts.figures import amount_text, duration_text
from ledger.domain.event import Event
from ledger.domain.money import Money
from marketplace.domain.quotas.policies_in_force import span_at

FIGURES = {
    "nominal": "nominal",
    "borrowing": "borrowing",
    "lending": "lending",
    "gpu_hours": "guaranteed GPU-hours",
}
"""Of a quota. Not set and 0 are two things, so both are said."""
NOT_SET = "not set"
EACH = {
    "bid": "each bid",
    "user": "each person",
    "subscriber": "each business unit",
    "tenant": "each organisation",
}
PPM, MIB_PER_GIB = 1_000_000, 1_024

Said = Mapping[str, Any]
Name = Callable[[Any], str]


def policy_text(kind: str, policy: Said, titles: Mapping[str, str]) -> str:
    """Write a policy in one line, without what a table says: when, why and by whom."""

    def name(of: Any) -> str:
        return titles.get(str(of), str(of))

    return WORDS[kind](policy, name)


def event_text(event: Event, titles: Mapping[str, str]) -> str:
    """Write a policy that is about to be set."""
    policy = {each.name: getattr(event, each.name) for each in fields(event)}  # type: ignore[arg-type]  # every event is a dataclass
    return policy_text(event.name.partition(".")[2], policy, titles)


def _cohort(said: Said, name: Name) -> str:
    whose = f", the grant of {name(said['tenant_id'])}" if said.get("tenant_id") else ""
    inside = f" is a member of {said['parent']}" if said.get("parent") else " is in no other cohort"
    return f"Cohort {said['cohort']}{inside}{whose}"


def _unit(said: Said, name: Name) -> str:
    cohort = said.get("cohort")
    return (
        f"{name(said['subscriber_id'])} is {f'a member of {cohort}' if cohort else 'in no cohort'}"
    )


def _quota(said: Said, name: Name) -> str:
    return f"Quota of {name(said['node'])} for {said['gpu_class']}: {_figures(said)}"


def _override(said: Said, name: Name) -> str:
    return f"{_quota(said, name)}, {_span(said)}"


def _figures(said: Said) -> str:
    shown = [name for name in FIGURES if name != "gpu_hours" or said.get(name) is not None]
    return ", ".join(f"{FIGURES[each]} {_set(said.get(each))}" for each in shown)


def _set(figure: Any) -> str:
    return NOT_SET if figure is None else str(figure)


def _limit(said: Said, name: Name) -> str:
    whose = name(said["subject"]) if said.get("subject") else EACH[str(said["scope"])]
    memory, money = said.get("memory_mib"), said.get("money")
    at_once = [
        f"{said['gpus']} GPUs" if said.get("gpus") is not None else "",
        f"{int(memory) / MIB_PER_GIB:g} GiB" if memory is not None else "",
    ]
    in_each = [
        f"{said['gpu_hours']} GPU-hours" if said.get("gpu_hours") is not None else "",
        _money(money) if money is not None else "",
    ]
    parts = [
        f"{' and '.join(filter(None, at_once))} at one time" if any(at_once) else "",
        f"{' and '.join(filter(None, in_each))} in each {said['period']}" if any(in_each) else "",
    ]
    return f"Limit of {whose}: {', '.join(filter(None, parts)) or 'none'}"


def _money(money: Any) -> str:
    if isinstance(money, Money):
        return amount_text(money.nanos, money.currency)
    return amount_text(int(money["nanos"]), str(money["currency"]))


def _weight(said: Said, name: Name) -> str:
    within = f" within {name(said['within'])}" if said.get("within") else ""
    return f"{name(said['node'])} has weight {int(said['weight_ppm']) / PPM:g}{within}"


def _half_life(said: Said, name: Name) -> str:
    return f"Half-life of use: {_length(said)}"


def _period(said: Said, name: Name) -> str:
    at, seconds = datetime.fromisoformat(str(said["starts_at"])), int(said["seconds"])
    running, _ = span_at(timezone.now(), starts_at=at, seconds=seconds)
    return (
        f"Guaranteed hours are counted in spans of {_length(said)}, one of which starts "
        f"{_moment(running)}"
    )


def _least_run(said: Said, name: Name) -> str:
    leases = f"Leases of {said['gpu_class']}" if said.get("gpu_class") else "Leases"
    if said.get("firm"):
        return f"Work that may be paused is paused once {_length(said)} of it are done"
    if said.get("lifted"):
        return f"{leases} have no least running time of their own any more"
    if not int(said["seconds"]):
        return f"{leases} may be interrupted for other bids from their start"
    return f"{leases} run {_length(said)} at least before other bids interrupt them"


def _counting(said: Said, name: Name) -> str:
    as_what = "the part of it that it is" if said["counts"] == "parts" else "a whole GPU"
    return f"A part of a card counts as {as_what}"


def _length(said: Said) -> str:
    return duration_text(timedelta(seconds=int(said["seconds"])))


def _allowed(said: Said, name: Name) -> str:
    who = said.get("who") or said.get("tenant_id")
    may = "may" if said["allowed"] else "may not"
    what = said.get("what", "list")
    return f"{name(who) if who else 'Everybody else'} {may} {what} {_class(said)}"


def _class(said: Said) -> str:
    return "any GPUs" if said["gpu_class"] == "any" else str(said["gpu_class"])


def _requested(said: Said, name: Name) -> str:
    gpus = "GPUs" if said["gpu_class"] == "any" else said["gpu_class"]
    wanted = f"{said['nominal']} {gpus} of its own"
    return f"{name(said['subscriber_id'])} asked for {wanted}, {_span(said)}"


def _approved(said: Said, name: Name) -> str:
    return f"A request for more was approved, to be taken up until {_moment(said['expires_at'])}"


def _declined(said: Said, name: Name) -> str:
    return "A request for more was declined"


def _lifted(said: Said, name: Name) -> str:
    return "A quota for a time ended before its time"


def _span(said: Said) -> str:
    return f"from {_moment(said['starts_at'])} until {_moment(said['ends_at'])}"


def _moment(value: Any) -> str:
    at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return f"{timezone.localtime(at):%a %-d %b %H:%M %Z}"


WORDS: Mapping[str, Callable[[Said, Name], str]] = {
    "cohort-placed": _cohort,
    "unit-placed": _unit,
    "quota-set": _quota,
    "quota-overridden": _override,
    "override-lifted": _lifted,
    "limit-set": _limit,
    "share-weight-set": _weight,
    "half-life-set": _half_life,
    "guarantee-period-set": _period,
    "least-run-set": _least_run,
    "counting-set": _counting,
    "use-allowed": _allowed,
    "listing-allowed": _allowed,
    "quota-requested": _requested,
    "quota-request-approved": _approved,
    "quota-request-declined": _declined,
}
"""By the kind of policy, as its event is called."""
