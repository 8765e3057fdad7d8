"""Requests for more quota: asked with a reason, approved with a token, taken up once by it."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.refusal import Forbidden, Refusal, Unknown
from marketplace.domain.facts.policy_events import (
    QuotaOverridden,
    QuotaRequestApproved,
    QuotaRequestDeclined,
    QuotaRequested,
)
from marketplace.domain.governance import authority
from marketplace.domain.governance.authority import Events, Setter
from marketplace.domain.quotas.policies_in_force import Policies, Request

REQUESTS_MAX = 1_000
TOKEN_LIFE = timedelta(days=1)


class QuotaRequestUnknown(Unknown):
    """There is no such request for quota."""


class QuotaRequestClosed(Refusal):
    """That request for quota was decided already, or has expired."""


class OwnQuotaRequest(Forbidden):
    """Nobody approves their own request for quota. Somebody else has to."""


class EscalationTokenWrong(Forbidden):
    """That token does not take this quota up: it is another one, used already, or expired."""


def request_quota(now: Policies, event: QuotaRequested, by: Setter) -> Events:
    """Ask for another nominal quota for a time.

    Raises: PolicyNotYours, CohortUnknown, OverrideSpanWrong, FigureOutOfRange, TooManyPolicies.
    """
    if event.request_id in now.requests:
        return []
    unit = authority.need_unit(now, event.subscriber_id)
    if not by.is_platform and unit.tenant_id != by.tenant_id:
        raise authority.PolicyNotYours(subscriber_id=event.subscriber_id)
    authority.need_class(event.gpu_class)
    authority.need_figure(event.nominal, authority.GPUS_MAX)
    authority.need_span(event.starts_at, event.ends_at, event.at)
    open_ones = [each for each in now.requests.values() if each.state == "open"]
    if len(open_ones) >= REQUESTS_MAX:
        raise authority.TooManyPolicies()
    return [event]


def approve_request(
    policies: Policies, request_id: UUID, by: Setter, *, token_id: UUID, now: datetime
) -> Events:
    """Approve a request: its token takes the quota up within a day, and before the request ends.

    Raises: PolicyNotYours, QuotaRequestUnknown, QuotaRequestClosed, OwnQuotaRequest.
    """
    authority.need_platform(by)
    request = _open_request(policies, request_id, now)
    if by.user_id is not None and request.asked.user_id == by.user_id:
        raise OwnQuotaRequest(request_id=request_id)
    return [
        QuotaRequestApproved(
            market=request.asked.market,
            request_id=request_id,
            token_id=token_id,
            expires_at=min(now + TOKEN_LIFE, request.asked.ends_at),
            at=now,
        )
    ]


def decline_request(
    policies: Policies, request_id: UUID, by: Setter, *, why: str, now: datetime
) -> Events:
    """Decline a request.

    Raises: PolicyNotYours, QuotaRequestUnknown, QuotaRequestClosed.
    """
    authority.need_platform(by)
    market = _open_request(policies, request_id, now).asked.market
    return [QuotaRequestDeclined(market=market, request_id=request_id, why=why, at=now)]


def take_up(
    policies: Policies, request_id: UUID, token_id: UUID, by: Setter, *, now: datetime
) -> Events:
    """Turn an approved request into an override, by its token.

    Raises: QuotaRequestUnknown, also for one of others; EscalationTokenWrong.
    """
    request = _request(policies, request_id)
    approved, asked = request.approved, request.asked
    if not by.is_platform and asked.tenant_id != by.tenant_id:
        raise QuotaRequestUnknown(request_id=request_id)  # as one that nobody made
    if approved is None or approved.token_id != token_id:
        raise EscalationTokenWrong(request_id=request_id)
    if request.state == "taken-up":
        return []
    if now >= approved.expires_at:
        raise EscalationTokenWrong(request_id=request_id, expired_at=approved.expires_at)
    node = str(asked.subscriber_id)
    was = policies.quotas.get((node, asked.gpu_class))
    return [
        QuotaOverridden(
            market=asked.market,
            override_id=uuid5(request_id, "override"),
            node=node,
            gpu_class=asked.gpu_class,
            nominal=asked.nominal,
            borrowing=None if was is None else was.borrowing,
            lending=None if was is None else was.lending,
            starts_at=asked.starts_at,
            ends_at=asked.ends_at,
            request_id=request_id,
            at=now,
            gpu_hours=None if was is None else was.gpu_hours,
            why=asked.why,
        )
    ]


def _request(policies: Policies, request_id: UUID) -> Request:
    request = policies.requests.get(request_id)
    if request is None:
        raise QuotaRequestUnknown(request_id=request_id)
    return request


def _open_request(policies: Policies, request_id: UUID, now: datetime) -> Request:
    request = _request(policies, request_id)
    if request.state != "open" or now >= request.asked.expires_at:
        raise QuotaRequestClosed(request_id=request_id, state=request.state)
    return request
