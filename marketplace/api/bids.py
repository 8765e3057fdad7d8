"""JSON over HTTP for bids: preview, place, look, amend, cancel, explain."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid5

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.domain.ids import BidId
from ledger.domain.money import Rate
from ledger.eventstore.port import stream_name
from ledger.rest import Body, Endpoint, MomentField, etag_of
from marketplace.api.explanations import ExplanationShape, explanation_json
from marketplace.api.shapes import (
    AmendBid,
    AskBid,
    BidShape,
    QuoteShape,
    quote_json,
    terms_of,
)
from marketplace.commands import bids as commands
from marketplace.commands.chains import end_chain
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.explain.ended_bid import explain_ended
from marketplace.explain.minimum_runtime import Undisturbed, undisturbed_for
from marketplace.models.bids import BidRow
from marketplace.queries import bids as queries
from marketplace.queries import books
from marketplace.queries.routing import routed

CHAIN_ORDER = ("chain_number", "bid_id")
NEWEST_FIRST = ("-placed_at", "bid_id")


class BidWritten(serializers.Serializer[object]):
    """Which bid was written, and the position to read it at."""

    id = serializers.UUIDField()
    service_class = serializers.CharField(required=False)
    market = serializers.CharField(required=False)
    position = serializers.IntegerField()


class Asking(Endpoint):
    """Whatever is sent a bid."""

    scopes: ClassVar = {}

    def terms(self, shape: type[Body]) -> BidTerms:
        """Return the terms that the body asks for, on behalf of the actor's business unit."""
        return self.routed(shape)[0]

    def routed(self, shape: type[Body]) -> tuple[BidTerms, BidRouted | None]:
        """Return them with their market, and how that was chosen where there was a choice."""
        asked = self.body(shape)
        terms = terms_of(
            asked,
            bid_id=asked.get("bid_id") or uuid5(self.command_id, "bid"),
            tenant_id=self.actor.tenant_id,
            user_id=self.actor.user_id,
            unit=queries.unit_of(self.actor, asked.get("subscriber_id")),
            market=settings.ENV.market,
            currency=settings.ENV.currency,
        )
        return routed(
            self.store(),
            terms,
            markets=settings.MARKETS,
            accepted=(asked["market"],) if "market" in asked else asked.get("markets", ()),
            now=timezone.now(),
        )


def shown_to(actor: Actor) -> Callable[[BidRow], dict[str, Any]]:
    """Return what shows a bid to `actor`, with what that one may do with it."""
    return lambda row: {**BidShape(row).data, "actions": list(queries.actions_of(actor, row))}


class Bids(Asking):
    """The bids of an organisation."""

    scopes: ClassVar = {"GET": "bids:read", "POST": "bids:write"}
    reads: ClassVar = ("marketplace.bids", "ledger.parties")
    one_append: ClassVar = True

    @extend_schema(responses=BidShape(many=True), parameters=[OpenApiParameter("state")])
    def get(self, request: Request) -> Response:
        """List bids, newest first; `state=open,filled` narrows the list."""
        states = [state for state in request.query_params.get("state", "").split(",") if state]
        return self.page(
            queries.bids(self.actor, states=states), shown_to(self.actor), NEWEST_FIRST
        )

    @extend_schema(request=AskBid, responses={201: BidWritten})
    def post(self, request: Request) -> Response:
        """Place a bid and set aside the most it can cost."""
        terms, route = self.routed(AskBid)
        position = commands.place_bid(
            self.store(), terms=terms, by=self.meta(), now=timezone.now(), route=route
        )
        answer = {
            "id": terms.bid_id,
            "service_class": terms.service_class,
            "market": terms.market,
            "position": position,
        }
        return Response(answer, status=201)


class PreviewBids(Asking):
    """What a bid would get."""

    scopes: ClassVar = {"POST": "bids:read"}
    reads: ClassVar = ("ledger.parties",)

    @extend_schema(request=AskBid, responses=QuoteShape)
    def post(self, request: Request) -> Response:
        """Clear the market with this bid in it and write nothing."""
        quote = books.preview(self.store(), terms=self.terms(AskBid), now=timezone.now())
        return Response(quote_json(quote))


class OneBid(Endpoint):
    """One bid."""

    scopes: ClassVar = {"GET": "bids:read", "PATCH": "bids:write", "DELETE": "bids:write"}
    reads: ClassVar = ("marketplace.bids",)

    @extend_schema(responses=BidShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Show it; the ETag is its version."""
        row = queries.bid(self.actor, bid_id)
        return Response(shown_to(self.actor)(row), headers={"ETag": etag_of(row.version)})

    @extend_schema(request=AmendBid, responses=BidWritten)
    def patch(self, request: Request, bid_id: UUID) -> Response:
        """Change limit, deadline or number of GPUs; it queues anew."""
        asked = self.body(AmendBid)
        row = queries.own_bid(self.actor, bid_id)
        position = commands.amend_bid(
            self.store(stream_name(Bid, bid_id)),
            bid_id=BidId(bid_id),
            limit=Rate(asked["limit"], row.currency) if "limit" in asked else None,
            deadline=asked.get("deadline"),
            gpus=asked.get("gpus"),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": bid_id, "position": position})

    @extend_schema(responses=BidWritten)
    def delete(self, request: Request, bid_id: UUID) -> Response:
        """Withdraw it and give its money back."""
        queries.own_bid(self.actor, bid_id)
        position = commands.cancel_bid(
            self.store(stream_name(Bid, bid_id)),
            bid_id=BidId(bid_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": bid_id, "position": position})


class BidChain(Endpoint):
    """The bids that follow one another, of which this is one."""

    scopes: ClassVar = {"GET": "bids:read", "DELETE": "bids:write"}
    reads: ClassVar = ("marketplace.bids",)

    @extend_schema(responses=BidShape(many=True))
    def get(self, request: Request, bid_id: UUID) -> Response:
        """List them, first to last."""
        return self.page(queries.chain(self.actor, bid_id), shown_to(self.actor), CHAIN_ORDER)

    @extend_schema(responses=BidWritten)
    def delete(self, request: Request, bid_id: UUID) -> Response:
        """Let none follow: the last is withdrawn if it waits; a lease that runs goes on."""
        queries.own_bid(self.actor, bid_id)
        position = end_chain(self.store(), bid_id=BidId(bid_id), by=self.meta(), now=timezone.now())
        return Response({"id": bid_id, "position": position})


class UndisturbedShape(serializers.Serializer[Any]):
    """Leases that would make room for a bid, had they run for their least time.

    until: when the last of them has; starts_by: when the bid would have to start, which is before.
    """

    leases = serializers.IntegerField()
    gpus = serializers.IntegerField()
    until = MomentField()
    starts_by = MomentField()
    least_run_seconds = serializers.SerializerMethodField()

    def get_least_run_seconds(self, found: Undisturbed) -> int:
        """Return the market's least running time."""
        return found.least // timedelta(seconds=1)


class ExplainedShape(ExplanationShape):
    """The funnel as the market is now; of a bid that ended unmatched, as it was then.

    as_of: the last moment at which it could have begun; null: now. undisturbed: what it would take
    the place of, but for the least running time of leases; null: nothing.
    """

    as_of = MomentField(allow_null=True)
    undisturbed = UndisturbedShape(allow_null=True)


class ExplainBid(Endpoint):
    """Why a bid is where it is."""

    scopes: ClassVar = {"GET": "bids:read"}
    reads: ClassVar = ("marketplace.bids",)

    @extend_schema(responses=ExplainedShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Walk the funnel as the market is now, or was when the bid ended unmatched."""
        row, ended = queries.bid(self.actor, bid_id), None
        explanation = books.explain_bid(
            self.store(), market=row.market, bid_id=bid_id, now=timezone.now()
        )
        if explanation is None:
            ended = explain_ended(self.store(), market=row.market, bid_id=bid_id)
            explanation = None if ended is None else ended.explanation
        said = explanation_json(explanation, state=row.state, currency=row.currency)
        undisturbed = undisturbed_for(
            self.store(), market=row.market, bid_id=bid_id, now=timezone.now()
        )
        said["undisturbed"] = undisturbed and UndisturbedShape(undisturbed).data
        as_of = None if ended is None else MomentField().to_representation(ended.at)
        return Response({**said, "as_of": as_of})
