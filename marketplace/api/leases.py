"""JSON over HTTP for leases: look, end, extend, and for owners, reclaim."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId
from ledger.domain.money import decimal_of
from ledger.eventstore.port import stream_name
from ledger.rest import Body, Endpoint, MomentField, etag_of
from marketplace.commands import leases as commands
from marketplace.domain.close_reasons import REASONS
from marketplace.domain.leases import Lease
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases as queries

NEWEST_FIRST = ("-granted_at", "lease_id")


class AskExtension(Body):
    """Until when to go on."""

    ends_at = MomentField()


def lease_json(row: LeaseRow) -> dict[str, Any]:
    """Return a lease as the API shows it."""
    reason = row.close_reason
    return {
        "id": row.lease_id,
        "bid_id": row.bid_id,
        "market": row.market,
        "tenant_id": row.tenant_id,
        "subscriber_id": row.subscriber_id,
        "gpu_model": row.gpu_model,
        "gpus": row.gpus,
        "gpu_uuids": row.gpu_uuids,
        "host_ids": row.host_ids,
        "state": row.state,
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "stop_at": row.stop_at,
        "price": decimal_of(row.price_nanos_per_gpu_hour),
        "currency": row.currency,
        "service_class": row.service_class,
        "workload_kind": row.workload_kind,
        "cost_centre": row.cost_centre,
        "burst": row.burst,
        "notice_seconds": row.notice_seconds,
        "reclaim_fee_ppm": row.reclaim_fee_ppm,
        "granted_at": row.granted_at,
        "activated_at": row.activated_at,
        "closed_at": row.closed_at,
        "close_reason": None if reason is None else {"code": reason, "text": REASONS[reason]},
        "version": row.version,
    }


class Leases(Endpoint):
    """The leases that one consumes or owns."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    def get(self, request: Request) -> Response:
        """List them, newest first; `state=active,ending` and `bid_id=` narrow the list."""
        states = [state for state in request.query_params.get("state", "").split(",") if state]
        rows = queries.leases(self.actor, states=states, bid_id=request.query_params.get("bid_id"))
        return self.page(rows, lease_json, NEWEST_FIRST)


class OneLease(Endpoint):
    """One lease."""

    scopes: ClassVar = {"GET": "leases:read", "DELETE": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    def get(self, request: Request, lease_id: UUID) -> Response:
        """Show it; the ETag is its version."""
        row = queries.lease(self.actor, lease_id)
        return Response(lease_json(row), headers={"ETag": etag_of(row.version)})

    def delete(self, request: Request, lease_id: UUID) -> Response:
        """End it, as its consumer."""
        queries.consumed_lease(self.actor, lease_id)
        position = commands.close_lease(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position})


class LeaseEvents(Endpoint):
    """The history of one lease."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    def get(self, request: Request, lease_id: UUID) -> Response:
        """List every event of it, oldest first."""
        queries.lease(self.actor, lease_id)
        events = queries.timeline(self.store(), lease_id)
        return Response(
            {
                "data": [
                    {"name": one.type, "version": one.version, "at": one.event.at}  # type: ignore[attr-defined]  # every event of a lease has one
                    for one in events
                ],
                "next": None,
            }
        )


class LeaseReclaim(Endpoint):
    """An owner's reclaim of one lease."""

    scopes: ClassVar = {"POST": "offers:write"}

    def post(self, request: Request, lease_id: UUID) -> Response:
        """Take the capacity back after the agreed notice."""
        queries.lease(self.actor, lease_id)
        position = commands.reclaim_lease(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            owner_id=self.actor.tenant_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position}, status=202)


class LeaseExtension(Endpoint):
    """A consumer's wish to go on."""

    scopes: ClassVar = {"POST": "leases:write"}

    def post(self, request: Request, lease_id: UUID) -> Response:
        """Ask the engine to extend in place; the lease shows when it has."""
        asked = self.body(AskExtension)
        queries.consumed_lease(self.actor, lease_id)
        position = commands.request_extension(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            ends_at=asked["ends_at"],
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position}, status=202)
