"""The log of policies and the requests for quota, as one actor may see them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from marketplace.domain.governance.quota_requests import QuotaRequestUnknown
from marketplace.models.quotas import PolicyRow, QuotaRequestRow


def policy_rows(actor: Actor, market: str) -> QuerySet[PolicyRow]:
    """Return the policies that concern the actor's organisation or everybody, newest first."""
    rows = visible(actor, PolicyRow) | PolicyRow.objects.filter(tenant_id=None)
    return rows.filter(market=market).order_by("-position")


def quota_requests(actor: Actor, market: str) -> QuerySet[QuotaRequestRow]:
    """Return the requests for quota of the actor's organisation, newest first.

    Who is neither its operator nor its auditor sees those of the own unit.
    """
    rows = visible(actor, QuotaRequestRow).filter(market=market).order_by("-asked_at", "pk")
    if actor.sees_all or actor.roles & {"operator", "auditor", "finance"}:
        return rows
    return (
        rows.none()
        if actor.subscriber_id is None
        else rows.filter(subscriber_id=actor.subscriber_id)
    )


def quota_request(actor: Actor, market: str, request_id: UUID) -> QuotaRequestRow:
    """Return one of `quota_requests`.

    Raises: QuotaRequestUnknown.
    """
    found = quota_requests(actor, market).filter(pk=request_id).first()
    if found is None:
        raise QuotaRequestUnknown(request_id=request_id)
    return found
