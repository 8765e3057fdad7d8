"""Earnings by offer, host and GPU: what the ledger knows by lease, placed where the lease ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from ledger.domain.journal import split
from ledger.queries.payouts import EarnedBy
from marketplace.models.leases import LeaseShareRow

By = Literal["gpu", "offer", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something was earned. None and empty: it belongs to no lease that is known."""

    offer_id: UUID | None = None
    host_id: UUID | None = None
    gpu_uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarnedAt:
    """What a place earned. The rows of one list add up to what was earned, to the nano-unit."""

    place: Place
    sku: str
    currency: str
    gpu_millis: int
    gross_nanos: int
    fee_nanos: int
    nanos: int


def earned_at(earned: Iterable[EarnedBy], *, owner_id: UUID, by: By) -> list[EarnedAt]:
    """Return what each offer, host or GPU of an owner earned, the most first.

    A lease on several of them is divided by the number of its GPUs there, by largest remainder.
    """
    each = list(earned)
    shares = _shares({row.lease_id for row in each if row.lease_id}, owner_id)
    found: dict[tuple[Place, str], EarnedAt] = {}
    for row in each:
        for part in _parts(row, shares.get(row.lease_id, []), by):
            key = part.place, part.currency
            before = found.get(key)
            found[key] = part if before is None else _together(before, part)
    return sorted(found.values(), key=lambda part: (-part.nanos, str(part.place)))


def _shares(lease_ids: set[UUID], owner_id: UUID) -> dict[UUID | None, list[LeaseShareRow]]:
    found: dict[UUID | None, list[LeaseShareRow]] = {}
    rows = LeaseShareRow.objects.filter(lease_id__in=lease_ids, owner_id=owner_id).order_by("key")
    for row in rows:
        found.setdefault(row.lease_id, []).append(row)
    return found


def _parts(row: EarnedBy, shares: Sequence[LeaseShareRow], by: By) -> list[EarnedAt]:
    places: dict[Place, int] = {}
    for share in shares:
        for gpu_uuid in share.gpu_uuids:
            whole = Place(offer_id=share.offer_id, host_id=share.host_id, gpu_uuid=gpu_uuid)
            place = _seen(whole, by)
            places[place] = places.get(place, 0) + 1
    if not places:
        places = {Place(): 1}
    weights = list(places.values())
    sums = (row.gpu_millis, row.gross_nanos, row.fee_nanos)
    millis, gross, fees = (_signed(each, weights) for each in sums)
    return [
        EarnedAt(
            place=place,
            sku=row.sku if row.kind == "usage" else "",
            currency=row.currency,
            gpu_millis=millis[index],
            gross_nanos=gross[index],
            fee_nanos=fees[index],
            nanos=gross[index] - fees[index],
        )
        for index, place in enumerate(places)
    ]


def _seen(place: Place, by: By) -> Place:
    match by:
        case "gpu":
            return replace(place, offer_id=None)
        case "offer":
            return replace(place, gpu_uuid="")
        case "host":
            return Place(host_id=place.host_id)


def _signed(nanos: int, weights: Sequence[int]) -> list[int]:
    parts = split(abs(nanos), weights)
    return parts if nanos >= 0 else [-each for each in parts]


def _together(before: EarnedAt, part: EarnedAt) -> EarnedAt:
    return replace(
        before,
        sku=before.sku or part.sku,
        gpu_millis=before.gpu_millis + part.gpu_millis,
        gross_nanos=before.gross_nanos + part.gross_nanos,
        fee_nanos=before.fee_nanos + part.fee_nanos,
        nanos=before.nanos + part.nanos,
    )
