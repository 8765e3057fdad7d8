"""What an owner promises of an offer's service, over HTTP."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import OfferId
from ledger.eventstore.port import stream_name
from ledger.rest import Body, CountField, Endpoint
from listings.api.shapes import Written
from listings.commands.promising import set_offer_sla
from listings.domain.sla import OfferSla
from listings.domain.sla_events import SlaTerms
from listings.queries import sla_of


class SlaStepBody(Body):
    """Available for less than this part of its granted time, this share of its charge is credited.

    Both in millionths.
    """

    below_ppm = CountField()
    credit_ppm = CountField()


class SlaBody(Body):
    """What leases granted from now on are promised.

    start_by_seconds: after a lease's begin at most, until its work has started. late_credit_ppm:
    the share of its charge that is credited for a later start. steps: the highest first.
    """

    start_by_seconds = CountField(required=False)
    late_credit_ppm = CountField(default=0)
    steps = SlaStepBody(many=True, default=list)


class PromiseOfOffer(Endpoint):
    """The level of service of an offer."""

    scopes: ClassVar = {"PUT": "offers:write", "DELETE": "offers:write"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(request=SlaBody, responses=Written)
    def put(self, request: Request, offer_id: UUID) -> Response:
        """Promise a level of service; leases granted before keep what they were granted on."""
        return self._set(offer_id, sla_of({"start_by_seconds": None, **self.body(SlaBody)}))

    @extend_schema(request=None, responses=Written)
    def delete(self, request: Request, offer_id: UUID) -> Response:
        """Promise nothing from now on."""
        return self._set(offer_id, None)

    def _set(self, offer_id: UUID, terms: SlaTerms | None) -> Response:
        position = set_offer_sla(
            self.store(stream_name(OfferSla, offer_id)),
            offer_id=OfferId(offer_id),
            terms=terms,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": offer_id, "position": position})
