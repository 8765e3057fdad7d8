"""JSON over HTTP for leases: look, end, extend, and for owners, reclaim."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.domain.ids import LeaseId
from ledger.domain.money import Rate, decimal_of
from ledger.eventstore.port import stream_name
from ledger.rest import AmountField, Endpoint, MomentField, etag_of
from marketplace.api.lease_bodies import AskExtension, AskReclaim, AskResale, ReportCheckpoint
from marketplace.api.lease_parts import (
    CutShape,
    MaintenanceTold,
    OutputFailedShape,
    OutputShape,
    WorkAttemptShape,
)
from marketplace.api.shapes import MountShape
from marketplace.commands import leases as commands
from marketplace.domain.clearing.extension import EXTENSION_REASONS
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.leases.lease import Lease
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases as queries
from marketplace.queries.folders import left_by
from marketplace.queries.prices import price_of

LEASE_MIN_SECONDS = 900
NEWEST_FIRST = ("-granted_at", "lease_id")


class AgreedReclaimStepShape(serializers.Serializer[Any]):
    """What a reclaim pays that comes with at least this much notice."""

    notice_seconds = serializers.IntegerField()
    fee_ppm = serializers.IntegerField()


class ReclaimStepsShape(serializers.Serializer[Any]):
    """What was agreed for the GPUs of one host."""

    host_id = serializers.UUIDField()
    gpus = serializers.IntegerField()
    steps = AgreedReclaimStepShape(many=True)


class ReclaimChoiceShape(serializers.Serializer[Any]):
    """One way to reclaim: with this notice, for this money."""

    notice_seconds = serializers.IntegerField()
    stop_at = MomentField()
    compensation = AmountField(source="compensation.nanos")
    currency = serializers.CharField(source="compensation.currency")


class ReclaimQuoteShape(serializers.Serializer[Any]):
    """What a reclaim asked for at `at` pays. No choices: the capacity is back sooner, by due_at."""

    lease_id = serializers.UUIDField()
    at = MomentField()
    due_at = MomentField()
    choices = ReclaimChoiceShape(many=True)


class KeptMomentField(MomentField):
    """An instant that a row keeps as text inside JSON."""

    def to_representation(self, value: Any) -> str:
        """Write it as every other instant."""
        return super().to_representation(datetime.fromisoformat(value))


class ResaleShape(serializers.Serializer[Any]):
    """The sale of the rest of a lease. opens_at: until then its owner may take it first."""

    state = serializers.CharField(source="resale_state")
    since = KeptMomentField(source="resale.since")
    ends_at = KeptMomentField(source="resale.ends_at")
    floor = AmountField(source="resale.floor_nanos")
    currency = serializers.CharField()
    lease_min_seconds = serializers.IntegerField(source="resale.lease_min_seconds")
    opens_at = KeptMomentField(source="resale.opens_at")


class ExtensionShape(serializers.Serializer[Any]):
    """The last extension asked for. answer: asked, granted, declined by the market, or refused for
    want of money before it was asked; reason_text says why."""

    ends_at = KeptMomentField()
    at = KeptMomentField()
    answer = serializers.CharField()
    reason = serializers.CharField()
    reason_text = serializers.SerializerMethodField()

    def get_reason_text(self, kept: dict[str, str]) -> str:
        """Say what stands in the way; empty where nothing does."""
        return EXTENSION_REASONS.get(kept["reason"], kept["reason"])


class CloseReasonShape(serializers.Serializer[Any]):
    """Why a lease is over."""

    code = serializers.IntegerField()
    text = serializers.CharField()


class LaterPriceShape(serializers.Serializer[Any]):
    """A price that both sides agreed to, and from when on it holds."""

    since = MomentField()
    price = AmountField(source="price.nanos_per_gpu_hour")


class LeaseShape(serializers.Serializer[Any]):
    """A lease as its consumer and its owners see it. stop_at: when a reclaim ends it.

    price: of use now. later_prices: what was agreed since it was granted, in order.

    inputs: the folder that its work finds; outputs: what of the work's folder is kept. An owner
    sees neither these nor `bid_id`, `subscriber_id` and `cost_centre`: they are null.
    """

    id = serializers.UUIDField(source="lease_id")
    bid_id = serializers.UUIDField(allow_null=True)
    market = serializers.CharField()
    tenant_id = serializers.UUIDField()
    subscriber_id = serializers.UUIDField(allow_null=True)
    gpu_model = serializers.CharField()
    gpus = serializers.IntegerField()
    gpu_uuids = serializers.ListField(child=serializers.CharField())
    host_ids = serializers.ListField(child=serializers.UUIDField())
    state = serializers.CharField()
    starts_at = MomentField()
    ends_at = MomentField()
    stop_at = MomentField(allow_null=True)
    price = serializers.SerializerMethodField()
    later_prices = LaterPriceShape(source="agreed", many=True)
    currency = serializers.CharField()
    service_class = serializers.CharField()
    workload_kind = serializers.CharField()
    cost_centre = serializers.CharField(allow_null=True)
    burst = serializers.BooleanField()
    notice_seconds = serializers.IntegerField()
    grace_seconds = serializers.IntegerField()
    reclaim_fee_ppm = serializers.IntegerField()
    reclaim_schedule = ReclaimStepsShape(many=True)
    resale = serializers.SerializerMethodField()
    resold_lease_id = serializers.UUIDField(allow_null=True)
    extension = ExtensionShape(allow_null=True)
    maintenance = MaintenanceTold(source="maintenance_ahead", many=True)
    checkpoint_at = MomentField(allow_null=True)
    checkpoint_seconds = serializers.IntegerField(allow_null=True)
    inputs = serializers.UUIDField(allow_null=True)
    fetch = serializers.CharField(allow_null=True)
    outputs = serializers.ListField(child=serializers.CharField(), allow_null=True)
    volumes = MountShape(many=True, allow_null=True)
    kept_seconds = serializers.IntegerField(allow_null=True)
    lost_seconds = serializers.IntegerField(allow_null=True)
    granted_at = MomentField()
    activated_at = MomentField(allow_null=True)
    closed_at = MomentField(allow_null=True)
    close_reason = serializers.SerializerMethodField()
    version = serializers.IntegerField()
    actions = serializers.ListField(child=serializers.CharField(), default=list)
    """What may be done with it now by who asks, of `end`, `extend`, `sell`, `keep`, `checkpoint`,
    `reclaim`, `take-first` and `reprice`; everything else would be refused."""

    @extend_schema_field(AmountField())
    def get_price(self, row: LeaseRow) -> str:
        """Return the price of use now, or the last it had."""
        return decimal_of(price_of(row, now=timezone.now()))

    @extend_schema_field(ResaleShape(allow_null=True))
    def get_resale(self, row: LeaseRow) -> dict[str, Any] | None:
        """Return the sale of the rest, None while there was none."""
        return None if row.resale is None else dict(ResaleShape(row).data)

    @extend_schema_field(CloseReasonShape(allow_null=True))
    def get_close_reason(self, row: LeaseRow) -> dict[str, Any] | None:
        """Return code and text, None while the lease lives."""
        reason = row.close_reason
        return None if reason is None else {"code": reason, "text": REASONS[reason]}


class OneLeaseShape(LeaseShape):
    """A lease, what cuts it short while it is reclaimed or interrupted, its attempts and outputs.

    resumes_lease_id: whose work it goes on with; resumed_by_lease_id: which goes on with its own.
    Both are null for who may not see why a lease was asked for. Only its consumer sees what its
    work left.
    """

    cut = CutShape(allow_null=True)
    attempts = WorkAttemptShape(many=True)
    resumes_lease_id = serializers.UUIDField(allow_null=True)
    resumed_by_lease_id = serializers.UUIDField(allow_null=True)
    output_folders = OutputShape(many=True)
    outputs_failed = OutputFailedShape(many=True)


CONSUMERS_OWN = ("bid_id", "subscriber_id", "cost_centre", "inputs", "fetch", "outputs", "volumes")
"""Why and for whom a lease was asked for is its consumer's own affair."""


def shown_to(actor: Actor) -> Callable[[LeaseRow], dict[str, Any]]:
    """Return what shows a lease to `actor`: an owner sees what it needs to serve it."""

    now = timezone.now()

    def show(row: LeaseRow) -> dict[str, Any]:
        shown = dict(LeaseShape(row).data)
        shown["actions"] = list(queries.actions_of(actor, [row], now=now)[row.lease_id])
        if not queries.sees_why(actor, row):
            shown.update(dict.fromkeys(CONSUMERS_OWN))
        return shown

    return show


class LeaseEventShape(serializers.Serializer[Any]):
    """One event of a lease. version: its place in the lease's history."""

    name = serializers.CharField()
    version = serializers.IntegerField()
    at = MomentField()


class LeaseWritten(serializers.Serializer[Any]):
    """Which lease was written, and the position to read it at."""

    lease_id = serializers.UUIDField()
    position = serializers.IntegerField()


class Leases(Endpoint):
    """The leases that one consumes or owns."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(
        responses=LeaseShape(many=True),
        parameters=[OpenApiParameter("state"), OpenApiParameter("bid_id", UUID)],
    )
    def get(self, request: Request) -> Response:
        """List them, newest first; `state=active,ending` and `bid_id=` narrow the list."""
        states = [state for state in request.query_params.get("state", "").split(",") if state]
        rows = queries.leases(self.actor, states=states, bid_id=request.query_params.get("bid_id"))
        return self.page(rows, shown_to(self.actor), NEWEST_FIRST)


class OneLease(Endpoint):
    """One lease."""

    scopes: ClassVar = {"GET": "leases:read", "DELETE": "leases:write"}
    reads: ClassVar = ("marketplace.leases", "marketplace.folders")

    @extend_schema(responses=OneLeaseShape)
    def get(self, request: Request, lease_id: UUID) -> Response:
        """Show it; the ETag is its version."""
        row = queries.lease(self.actor, lease_id)
        cut = queries.cut_of(self.actor, self.store(), row)
        before, after = queries.resumed(self.actor, row)
        shown = shown_to(self.actor)(row) | {
            "cut": None if cut is None else CutShape(cut).data,
            "attempts": WorkAttemptShape(queries.attempts(self.store(), lease_id), many=True).data,
            "resumes_lease_id": before,
            "resumed_by_lease_id": after,
        }
        left = left_by(self.actor, row)
        shown["output_folders"] = OutputShape(left.folders, many=True).data
        shown["outputs_failed"] = OutputFailedShape(left.failed, many=True).data
        return Response(shown, headers={"ETag": etag_of(row.version)})

    @extend_schema(responses=LeaseWritten)
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

    @extend_schema(responses=LeaseEventShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List every event of it, oldest first."""
        queries.lease(self.actor, lease_id)
        events = queries.timeline(self.store(), lease_id)
        told = [
            {"name": one.type, "version": one.version, "at": one.event.at}  # type: ignore[attr-defined]  # every event of a lease has one
            for one in events
        ]
        return self.listed(told, ("version",))


class LeaseReclaim(Endpoint):
    """An owner's reclaim of one lease."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=AskReclaim, responses={202: LeaseWritten})
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Take the capacity back after the agreed notice, or after more for a lower fee."""
        seconds = self.body(AskReclaim).get("notice_seconds")
        queries.lease(self.actor, lease_id)
        position = commands.reclaim_lease(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            owner_id=self.actor.tenant_id,
            notice=None if seconds is None else timedelta(seconds=seconds),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position}, status=202)


class LeaseReclaimQuote(Endpoint):
    """What a reclaim would cost."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(responses=ReclaimQuoteShape)
    def get(self, request: Request, lease_id: UUID) -> Response:
        """Price each notice: an owner's own reclaim; for the consumer, that of all owners."""
        quote = queries.reclaim_quote(self.actor, self.store(), lease_id, now=timezone.now())
        return Response(ReclaimQuoteShape(quote).data)


class LeaseExtension(Endpoint):
    """A consumer's wish to go on."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=AskExtension, responses={202: LeaseWritten})
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


class LeaseCheckpoint(Endpoint):
    """How far the work of a lease is safe."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=ReportCheckpoint, responses=LeaseWritten)
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Note that the work can go on from this moment, where the lease is cut short."""
        now = timezone.now()
        safe_at = self.body(ReportCheckpoint).get("safe_at", now)
        queries.consumed_lease(self.actor, lease_id)
        position = commands.save_work(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            host_id=None,
            safe_at=safe_at,
            by=self.meta(),
            now=now,
        )
        return Response({"lease_id": lease_id, "position": position})


class LeaseResale(Endpoint):
    """A consumer's sale of the rest of a lease."""

    scopes: ClassVar = {"POST": "leases:write", "DELETE": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=AskResale, responses={202: LeaseWritten})
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Put the rest back on the market; its owner may take it first."""
        asked = self.body(AskResale)
        row = queries.consumed_lease(self.actor, lease_id)
        position = commands.sell_rest(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            since=asked.get("since"),
            floor=Rate(asked["floor"], asked.get("currency", row.currency)),
            lease_min_seconds=asked.get("lease_min_seconds", LEASE_MIN_SECONDS),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position}, status=202)

    @extend_schema(responses=LeaseWritten)
    def delete(self, request: Request, lease_id: UUID) -> Response:
        """Keep the rest after all, as long as nobody bought it."""
        queries.consumed_lease(self.actor, lease_id)
        position = commands.keep_rest_of_lease(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position})


class LeaseFirstRefusal(Endpoint):
    """An owner's right to take the rest of a lease that is for sale."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=None, responses={202: LeaseWritten})
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Take it, for what the consumer would have gained at the floor."""
        queries.lease(self.actor, lease_id)
        position = commands.take_rest_first(
            self.store(stream_name(Lease, lease_id)),
            lease_id=LeaseId(lease_id),
            owner_id=self.actor.tenant_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"lease_id": lease_id, "position": position}, status=202)
