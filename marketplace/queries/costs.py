"""What accounts were charged, told apart by what the market knows of leases as well.

The ledger knows a charge's lease; whose project it was, who bid for it, for what kind of work, on
which GPUs and of which offer is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args
from uuid import UUID

from django.db.models import Q

from ledger.access import Actor
from ledger.domain.journal import split
from ledger.domain.periods import Period
from ledger.queries.costs import COST_BYS, CostByUnknown, CostPart, costs
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.models.spending import SpendingBidRow

LeaseBy = Literal["project", "person", "work", "gpu", "offer"]
"""What only a lease tells. work: its kind. gpu: the model."""
LEASE_BYS: Sequence[LeaseBy] = get_args(LeaseBy)
LEASES_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one part came to. keys: one for each grouping that was asked for; empty: of none."""

    keys: tuple[str, ...]
    currency: str
    nanos: int
    gpu_millis: int
    entries: int


def cost_by(
    actor: Actor,
    first: Period,
    last: Period,
    *,
    by: Sequence[str],
    only: Mapping[str, str] | None = None,
) -> list[Cost]:
    """Return what the months from `first` to `last` cost by any of `COST_BYS` and `LEASE_BYS`.

    A lease on several offers is divided by the number of its GPUs there, by largest remainder, and
    an entry counts with each of them. The most is first; with two groupings the parts of the
    larger first one.

    Raises: CostByUnknown.
    """
    only = only or {}
    of_lease = [name for name in dict.fromkeys((*by, *only)) if name in LEASE_BYS]
    told = [name for name in by if name not in LEASE_BYS]
    asked = [*told, "lease"] if of_lease else told
    rest = {name: key for name, key in only.items() if name not in LEASE_BYS}
    parts = costs(actor, first, last, by=asked, only=rest)
    if of_lease:
        parts = _with_leases(parts, of_lease)
    names = [*told, *of_lease]
    found: dict[tuple[tuple[str, ...], str], Cost] = {}
    for part in parts:
        known = dict(zip(names, part.keys, strict=True))
        if any(known[name] != only[name] for name in of_lease if name in only):
            continue
        keys = tuple(known[name] for name in by)
        before = found.get((keys, part.currency))
        found[keys, part.currency] = Cost(
            keys=keys,
            currency=part.currency,
            nanos=part.nanos + (before.nanos if before else 0),
            gpu_millis=part.gpu_millis + (before.gpu_millis if before else 0),
            entries=part.entries + (before.entries if before else 0),
        )
    return _most_first(list(found.values()))


def _most_first(found: list[Cost]) -> list[Cost]:
    totals: dict[tuple[str, str], int] = {}
    for each in found:
        key = (each.currency, each.keys[0]) if each.keys else (each.currency, "")
        totals[key] = totals.get(key, 0) + each.nanos

    def order(each: Cost) -> tuple[str, int, tuple[str, ...], int, tuple[str, ...]]:
        head = each.keys[:1]
        total = totals[each.currency, head[0] if head else ""]
        return each.currency, -total, head, -each.nanos, each.keys

    return sorted(found, key=order)


def _with_leases(parts: Iterable[CostPart], names: Sequence[str]) -> Iterator[CostPart]:
    """Yield the parts with what a lease tells in place of the lease, their last key."""
    left = iter(parts)
    while some := list(islice(left, LEASES_AT_ONCE)):
        known = _facts({UUID(part.keys[-1]) for part in some if part.keys[-1]}, names)
        for part in some:
            lease = part.keys[-1]
            yield from _parts(part, known.get(UUID(lease), {}) if lease else {}, names)


def _facts(lease_ids: set[UUID], names: Sequence[str]) -> dict[UUID, dict[tuple[str, ...], int]]:
    """Return what each lease tells, with the number of GPUs of which it tells that."""
    rows = list(
        LeaseRow.objects.filter(lease_id__in=lease_ids).values_list(
            "lease_id", "bid_id", "user_id", "workload_kind", "gpu_model"
        )
    )
    bids = {bid_id for _, bid_id, *_ in rows} if "project" in names else set()
    projects = dict(SpendingBidRow.objects.filter(bid_id__in=bids).values_list("bid_id", "project"))
    offers = _offers(lease_ids) if "offer" in names else {}
    found: dict[UUID, dict[tuple[str, ...], int]] = {}
    for lease_id, bid_id, user_id, work, gpu in rows:
        told = {
            "project": projects.get(bid_id, ""),
            "person": str(user_id or ""),
            "work": work,
            "gpu": gpu,
        }
        for offer, gpus in offers.get(lease_id, {"": 1}).items():
            keys = tuple(offer if name == "offer" else told[name] for name in names)
            found.setdefault(lease_id, {})[keys] = gpus
    return found


def _offers(lease_ids: set[UUID]) -> dict[UUID, dict[str, int]]:
    found: dict[UUID, dict[str, int]] = {}
    shares = LeaseShareRow.objects.filter(lease_id__in=lease_ids).order_by("key")
    for lease_id, offer_id, gpus in shares.values_list("lease_id", "offer_id", "gpu_uuids"):
        offers = found.setdefault(lease_id, {})
        offers[str(offer_id)] = offers.get(str(offer_id), 0) + max(1, len(gpus))
    return found


def _parts(
    part: CostPart, told: Mapping[tuple[str, ...], int], names: Sequence[str]
) -> Iterator[CostPart]:
    kept = part.keys[:-1]
    if not told:
        told = {("",) * len(names): 1}
    weights = list(told.values())
    nanos, millis = _signed(part.nanos, weights), _signed(part.gpu_millis, weights)
    for index, keys in enumerate(told):
        yield CostPart(
            keys=(*kept, *keys),
            currency=part.currency,
            nanos=nanos[index],
            gpu_millis=millis[index],
            entries=part.entries,
        )


def _signed(amount: int, weights: Sequence[int]) -> list[int]:
    parts = split(abs(amount), weights)
    return parts if amount >= 0 else [-each for each in parts]


def leases_told(only: Mapping[str, str]) -> Q:
    """Return the condition on `lease_id` that leases tell all that is wanted; see `LEASE_BYS`.

    Raises: CostByUnknown.
    """
    found = Q()
    for name, key in only.items():
        if name in LEASE_BYS:
            found &= _told(name, key)
        elif name not in COST_BYS:
            raise CostByUnknown(given=name[:40])
    return found


def _told(name: str, key: str) -> Q:
    """Return the leases that tell `key`; with none, also what belongs to no lease that is known."""
    try:
        match name:
            case "project":
                bids = SpendingBidRow.objects
                named = bids.filter(project=key) if key else bids.exclude(project="")
                leases = LeaseRow.objects.filter(bid_id__in=named.values("bid_id"))
            case "offer":
                shares = LeaseShareRow.objects
                mine = shares.filter(offer_id=UUID(key)) if key else shares.all()
                leases = LeaseRow.objects.filter(lease_id__in=mine.values("lease_id"))
            case "person":
                people = LeaseRow.objects
                leases = people.filter(user_id=UUID(key)) if key else people.exclude(user_id=None)
            case _:
                column = {"work": "workload_kind", "gpu": "gpu_model"}[name]
                leases = LeaseRow.objects.filter(
                    **({column: key} if key else {f"{column}__gt": ""})
                )
    except ValueError:
        return Q(lease_id__in=())
    ids = leases.values("lease_id")
    return Q(lease_id__in=ids) if key else Q(lease_id=None) | ~Q(lease_id__in=ids)
