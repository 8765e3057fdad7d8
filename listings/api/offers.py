"""An owner's offers over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4, uuid5

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.domain.ids import HostId, OfferId
from ledger.domain.money import Rate
from ledger.eventstore.port import stream_name
from ledger.rest import Endpoint, etag_of
from listings import commands, queries
from listings.api.changes import ChangeOffer, change_of
from listings.api.shapes import (
    EarningsShape,
    OfferBody,
    OfferShape,
    PublishOffer,
    WindowShape,
    Written,
    terms_of,
)
from listings.api.spans import SPAN, offers_wanted, read_span
from listings.commands.previewing import check_offer
from listings.domain.earnings import preview_earnings
from listings.domain.offers import Offer
from listings.domain.terms import check_terms, leased_gpus
from listings.domain.windows import windows_between
from listings.models import OfferRow

PREVIEWED = timedelta(days=28)
"""Earnings of a weekly rule are previewed over four weeks."""


def shown_to(actor: Actor) -> Callable[[OfferRow], dict[str, Any]]:
    """Return what shows an offer to `actor`, with what that one may do with it."""
    now = timezone.now()

    def show(row: OfferRow) -> dict[str, Any]:
        actions = queries.actions_of(actor, row, now=now)
        return {**OfferShape(row).data, "actions": list(actions)}

    return show


class Offers(Endpoint):
    """An owner's offers."""

    scopes: ClassVar = {"GET": "offers:read", "POST": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(
        responses=OfferShape(many=True),
        parameters=[OpenApiParameter("state"), OpenApiParameter("host")],
    )
    def get(self, request: Request) -> Response:
        """List offers, newest first; `state` and `host` narrow the list."""
        chosen = offers_wanted(request.query_params)
        rows = queries.offers(self.actor, states=chosen.states, host_id=chosen.host_id)
        return self.page(rows, shown_to(self.actor), ("-published_at", "offer_id"))

    @extend_schema(request=PublishOffer, responses={201: Written})
    def post(self, request: Request) -> Response:
        """Put GPUs of one host on the market."""
        asked, by = self.body(PublishOffer), self.meta()
        assert by.command_id is not None
        offer_id = OfferId(asked.get("offer_id") or uuid5(by.command_id, "offer"))
        position = commands.publish_offer(
            self.store(),
            offer_id=offer_id,
            host_id=HostId(asked["host_id"]),
            terms=terms_of(asked),
            by=by,
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position}, status=201)


class PreviewOffers(Endpoint):
    """What an offer would bring in."""

    scopes: ClassVar = {"POST": "offers:read"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(request=OfferBody, responses=EarningsShape)
    def post(self, request: Request) -> Response:
        """Preview earnings as a range; nothing is written.

        With a host it is refused what publishing would be.
        """
        now, asked = timezone.now(), self.body(OfferBody)
        terms = check_terms(terms_of(asked), now=now)
        if "host_id" in asked:
            check_offer(
                self.store(),
                offer_id=OfferId(asked.get("offer_id") or uuid4()),
                host_id=HostId(asked["host_id"]),
                terms=terms,
                tenant_id=self.actor.tenant_id,
                now=now,
            )
        windows = windows_between(terms.windows, terms.weekly, since=now, until=now + PREVIEWED)
        earnings = preview_earnings(
            windows,
            gpus=leased_gpus(terms),
            floor=terms.floor,
            fee_ppm=settings.ENV.fee_ppm,
            fill=queries.recent_fill(now=now),
        )
        return Response(EarningsShape({"earnings": earnings, "windows": windows}).data)


class OneOffer(Endpoint):
    """One offer of an owner."""

    scopes: ClassVar = {"GET": "offers:read", "PATCH": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(responses=OfferShape)
    def get(self, request: Request, offer_id: UUID) -> Response:
        """Show an offer."""
        row = queries.offer(self.actor, offer_id)
        return Response(shown_to(self.actor)(row), headers={"ETag": etag_of(row.version)})

    @extend_schema(request=ChangeOffer, responses=Written)
    def patch(self, request: Request, offer_id: UUID) -> Response:
        """Change floor or terms for leases to come; those granted keep price and terms."""
        asked = self.body(ChangeOffer)
        position = commands.change_offer(
            self.store(stream_name(Offer, offer_id)),
            offer_id=OfferId(offer_id),
            floor=Rate(asked["floor"], asked["currency"]) if "floor" in asked else None,
            terms=change_of(asked),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position})


class OfferWindows(Endpoint):
    """When an offer's GPUs are for lease."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(responses=WindowShape(many=True), parameters=SPAN)
    def get(self, request: Request, offer_id: UUID) -> Response:
        """List the windows between `since` and `until`, weekly ones worked out."""
        span = read_span(request.query_params, now=timezone.now())
        row = queries.offer(self.actor, offer_id)
        windows = queries.windows_of_row(row, since=span.since, until=span.until)
        return self.listed(WindowShape(windows, many=True).data, ("starts_at", "ends_at"))


class PauseOffer(Endpoint):
    """No new leases for now."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, offer_id: UUID) -> Response:
        """Stop new leases for now."""
        position = commands.pause_offer(
            self.store(stream_name(Offer, offer_id)),
            offer_id=OfferId(offer_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position})


class ResumeOffer(Endpoint):
    """New leases again."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, offer_id: UUID) -> Response:
        """Take new leases again."""
        position = commands.resume_offer(
            self.store(stream_name(Offer, offer_id)),
            offer_id=OfferId(offer_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position})


class WithdrawOffer(Endpoint):
    """The end of an offer."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, offer_id: UUID) -> Response:
        """Take the offer off the market for good; leases granted before run on."""
        position = commands.withdraw_offer(
            self.store(stream_name(Offer, offer_id)),
            offer_id=OfferId(offer_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position})
