"""What can be asked of the policies of a market: one command for every rule of governance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from ledger.eventstore.port import START, EventStore, Meta, Position, record
from ledger.eventstore.together import Part, record_together
from listings.commands import permitting
from listings.domain.permit_events import ListingAllowed
from marketplace.domain.facts.policy_events import GovernanceEvent
from marketplace.domain.governance import authority, quota_requests
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import Policy, ruled
from marketplace.domain.quotas.policies_in_force import Policies


def set_policy(store: EventStore, *, policy: Policy, setter: Setter, by: Meta) -> Position:
    """Set a policy, or ask for one; the same again changes nothing.

    Raises: every refusal of the rule of `governance` that it falls under.
    """
    return _decide(store, policy.market, lambda now: ruled(now, policy, setter), by)


def set_policies(
    store: EventStore,
    *,
    policies: Sequence[Policy | ListingAllowed],
    setter: Setter,
    by: Meta,
) -> Position:
    """Set policies of one market, one after the other: all of them, or none if one is refused.

    Who may list is on a stream of its own. Both are written in one append, while nobody else
    writes; where a store cannot do that, who may list comes last, because once it was asked nothing
    refuses it any more but the thousandth permit of somebody else, and the same request sets the
    rest.

    Raises: every refusal of the rules that they fall under.
    """
    of_market = [each for each in policies if not isinstance(each, ListingAllowed)]
    listings = [each for each in policies if isinstance(each, ListingAllowed)]
    for permitted in listings:
        authority.need_reason(permitted.why)

    def rule(now: Policies | None) -> Sequence[GovernanceEvent]:
        state, found = now, list[GovernanceEvent]()
        for policy in of_market:
            for event in ruled(state, policy, setter):
                state = Policies.evolve(state, event)
                found.append(event)
        return found

    parts = []
    if of_market:
        parts.append(Part(Policies, of_market[0].market, rule, by))
    if listings:
        parts.append(permitting(listings, by_platform=setter.is_platform, by=by))
    return max(record_together(store, parts, alone=len(parts) > 1), default=START)


def lift_override(
    store: EventStore,
    *,
    market: str,
    override_id: UUID,
    why: str = "",
    setter: Setter,
    by: Meta,
    now: datetime,
) -> Position:
    """End an override before its time.

    Raises: PolicyNotYours, OverrideUnknown, ReasonTooLong.
    """

    def rule(policies: Policies) -> Sequence[GovernanceEvent]:
        authority.need_reason(why)
        return authority.lift_override(
            policies, override_id, setter, market=market, why=why, now=now
        )

    return _decide(store, market, rule, by)


def approve_request(
    store: EventStore, *, market: str, request_id: UUID, setter: Setter, by: Meta, now: datetime
) -> Position:
    """Approve a request for quota; its token expires.

    Raises: PolicyNotYours, QuotaRequestUnknown, QuotaRequestClosed, OwnQuotaRequest.
    """

    token_id = uuid4()

    def rule(policies: Policies) -> Sequence[GovernanceEvent]:
        return quota_requests.approve_request(
            policies, request_id, setter, token_id=token_id, now=now
        )

    return _decide(store, market, rule, by)


def decline_request(
    store: EventStore,
    *,
    market: str,
    request_id: UUID,
    why: str,
    setter: Setter,
    by: Meta,
    now: datetime,
) -> Position:
    """Decline a request for quota.

    Raises: PolicyNotYours, QuotaRequestUnknown, QuotaRequestClosed.
    """

    def rule(policies: Policies) -> Sequence[GovernanceEvent]:
        return quota_requests.decline_request(policies, request_id, setter, why=why, now=now)

    return _decide(store, market, rule, by)


def take_up(
    store: EventStore,
    *,
    market: str,
    request_id: UUID,
    token_id: UUID,
    setter: Setter,
    by: Meta,
    now: datetime,
) -> Position:
    """Turn an approved request into an override by its token.

    Raises: QuotaRequestUnknown, also for one of others; EscalationTokenWrong.
    """

    def rule(policies: Policies) -> Sequence[GovernanceEvent]:
        return quota_requests.take_up(policies, request_id, token_id, setter, now=now)

    return _decide(store, market, rule, by)


def _decide(
    store: EventStore,
    market: str,
    rule: Callable[[Policies], Sequence[GovernanceEvent]],
    by: Meta,
) -> Position:
    return record(store, Policies, market, lambda now: rule(now or Policies()), by=by)
