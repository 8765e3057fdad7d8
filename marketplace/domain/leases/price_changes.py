"""The price of a lease changes only where its consumer and all its owners agree to it.

One side proposes a price from a moment to come on; the others agree or decline until an hour that
the proposal names. What is agreed holds for use from that moment on, never for use before it. No
market, spot price or rate of an offer ever changes the price of a lease that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, assert_never
from uuid import UUID

from ledger.domain.holds import need_text
from ledger.domain.ids import LeaseId, TenantId, UserId
from ledger.domain.money import Rate
from ledger.domain.refusal import Invalid, Refusal, Unknown
from marketplace.domain.bids.bounds import LIMIT_MAX_NANOS
from marketplace.domain.facts.events import LeaseRepriced
from marketplace.domain.facts.price_events import (
    LeasePriceAgreed,
    LeasePriceDeclined,
    LeasePriceProposed,
    LeasePriceWithdrawn,
    PriceChangeEvent,
)
from marketplace.domain.leases.actions import (
    PRICE_AHEAD_MIN,
    PriceTooSoon,
    need,
    not_repriced,
    standing_of,
)
from marketplace.domain.leases.state import LeaseState

KNOWN_BEFORE = timedelta(minutes=1)
"""A change is agreed so long before it holds, at the least: so whoever meters knows of it."""
ANSWER_WITHIN = timedelta(days=1)
"""So long a proposal waits that does not say for how long."""
WHY_LENGTH_MAX = 400
PROPOSALS_MAX = 200
"""Of one lease; who wants more of them wants another lease."""

ProposalState = Literal["open", "agreed", "declined", "withdrawn", "overtaken"]


class ProposalUnknown(Unknown):
    """Nobody proposed that price of this lease."""


class ProposalOver(Refusal):
    """That proposal is not open: it was answered, withdrawn or overtaken, or its time is over."""


class OwnProposal(Refusal):
    """Whoever proposes a price has agreed to it already: now the others are asked.

    Withdraw it, if it is not wanted any more.
    """


class NotYourProposal(Refusal):
    """Only the organisation that proposed a price withdraws it; decline it instead."""


class ProposalIsOpen(Refusal):
    """Your organisation has proposed another price of this lease, which is still open.

    Withdraw that one first.
    """


class PriceUnchanged(Invalid):
    """That is the price already."""


class PriceUnreadable(Invalid):
    """A price per GPU-hour is not negative and in the currency of the lease."""


class PriceBelowFloor(Refusal):
    """An offer that the lease is of asks for more. Its owner lowers the floor first."""


class TooManyProposals(Refusal):
    """Two hundred prices were proposed for this lease: it keeps the one it has."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A price that was proposed. agreed: by whom so far, who proposed it among them."""

    proposed: LeasePriceProposed
    agreed: frozenset[TenantId]
    state: ProposalState = "open"

    def is_open(self, *, now: datetime) -> bool:
        """Tell if it can still be answered."""
        return self.state == "open" and now < self.proposed.answer_by


@dataclass(frozen=True, slots=True)
class PriceChanges:
    """The prices that were proposed for one lease, in order."""

    STREAM: ClassVar[str] = "lease-prices"

    proposals: Mapping[UUID, Proposal] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: PriceChanges | None, event: PriceChangeEvent, /) -> PriceChanges:
        """Return them after `event`."""
        known = dict(state.proposals) if state is not None else {}
        if isinstance(event, LeasePriceProposed):
            known[event.proposal_id] = Proposal(event, frozenset({event.tenant_id}))
            return cls(known)
        of = known[event.proposal_id]
        match event:
            case LeasePriceAgreed() if event.by_all:
                for key, each in known.items():
                    if each.state == "open":  # they were about a price that is no more
                        known[key] = replace(each, state="overtaken")
                of = replace(of, agreed=of.agreed | {event.tenant_id}, state="agreed")
            case LeasePriceAgreed():
                of = replace(of, agreed=of.agreed | {event.tenant_id})
            case LeasePriceDeclined():
                of = replace(of, state="declined")
            case LeasePriceWithdrawn():
                of = replace(of, state="withdrawn")
            case _:
                assert_never(event)
        known[event.proposal_id] = of
        return cls(known)

    def named(self, proposal_id: UUID) -> Proposal:
        """Return a proposal.

        Raises: ProposalUnknown.
        """
        if proposal_id not in self.proposals:
            raise ProposalUnknown(proposal_id=str(proposal_id))
        return self.proposals[proposal_id]


def parties(lease: LeaseState) -> tuple[TenantId, ...]:
    """Return who has to agree to another price: the consumer, then its owners."""
    owners = (share.owner_id for share in lease.terms.shares)
    return tuple(dict.fromkeys((lease.terms.tenant_id, *owners)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A price that somebody wants. answer_by: None: a day, as far as that is before it holds."""

    proposal_id: UUID
    tenant_id: TenantId
    user_id: UserId | None
    price: Rate
    since: datetime
    answer_by: datetime | None = None
    why: str = ""


def propose(
    known: PriceChanges, lease: LeaseState, wish: Wish, *, floors: Sequence[Rate], now: datetime
) -> list[LeasePriceProposed]:
    """Decide whether a price may be proposed; asked again it changes nothing.

    floors: those of the lease's offers as they are now.

    Raises: NotAParty and what else keeps the price of the lease (`actions.need`),
        PriceUnreadable, PriceUnchanged, PriceBelowFloor, PriceTooSoon, ProposalIsOpen,
        TooManyProposals, TextUnreadable.
    """
    if wish.proposal_id in known.proposals:
        return []
    need("reprice", lease, tenant_id=wish.tenant_id, now=now)
    since = wish.since.replace(microsecond=0)
    before = lease.price_at(since)
    need_text(wish.why, length_max=WHY_LENGTH_MAX)
    if wish.price.currency != before.currency or not (
        0 <= wish.price.nanos_per_gpu_hour <= LIMIT_MAX_NANOS
    ):
        raise PriceUnreadable(currency=before.currency)
    if wish.price == before:
        raise PriceUnchanged(price=before)
    latest = since - KNOWN_BEFORE
    answer_by = min(wish.answer_by or now + ANSWER_WITHIN, latest)
    if since < now + PRICE_AHEAD_MIN or wish.answer_by not in (None, answer_by) or answer_by <= now:
        raise PriceTooSoon(soonest=now + PRICE_AHEAD_MIN, answer_by_latest=latest)
    _need_to_hold(lease, wish.price, since, floors)
    if any(
        each.proposed.tenant_id == wish.tenant_id and each.is_open(now=now)
        for each in known.proposals.values()
    ):
        raise ProposalIsOpen()
    if len(known.proposals) >= PROPOSALS_MAX:
        raise TooManyProposals(most=PROPOSALS_MAX)
    return [
        LeasePriceProposed(
            lease_id=lease.terms.lease_id,
            market=lease.terms.market,
            proposal_id=wish.proposal_id,
            tenant_id=wish.tenant_id,
            user_id=wish.user_id,
            of=parties(lease),
            before=before,
            price=wish.price,
            since=since,
            answer_by=answer_by,
            why=wish.why.strip(),
            at=now,
        )
    ]


def _need_to_hold(lease: LeaseState, price: Rate, since: datetime, floors: Sequence[Rate]) -> None:
    if since >= lease.ends_at or (lease.repriced and since <= lease.repriced[-1].since):
        raise PriceTooSoon(lease_ends_at=lease.ends_at)
    for floor in floors:
        if price < floor:
            raise PriceBelowFloor(floor=floor)


def agree(
    known: PriceChanges,
    lease: LeaseState,
    proposal_id: UUID,
    *,
    who: tuple[TenantId, UserId | None],
    floors: Sequence[Rate],
    now: datetime,
) -> list[LeasePriceAgreed]:
    """Decide that an organisation agrees to a price; again changes nothing. who: it, by whom.

    Raises: ProposalUnknown, ProposalOver, OwnProposal, PriceBelowFloor, PriceTooSoon, and what
        keeps the price of the lease.
    """
    proposal, (tenant_id, user_id) = known.named(proposal_id), who
    proposed = proposal.proposed
    if tenant_id in proposal.agreed:
        if tenant_id == proposed.tenant_id:
            raise OwnProposal()
        return []
    refusal = not_repriced(standing_of(lease), tenant_id, now)
    if refusal is not None:
        raise refusal
    if not proposal.is_open(now=now):
        raise ProposalOver(state=proposal.state, answer_by=proposed.answer_by)
    _need_to_hold(lease, proposed.price, proposed.since, floors)
    agreed = proposal.agreed | {tenant_id}
    return [
        LeasePriceAgreed(
            lease_id=proposed.lease_id,
            proposal_id=proposal_id,
            tenant_id=tenant_id,
            user_id=user_id,
            by_all=agreed.issuperset(proposed.of),
            at=now,
        )
    ]


def decline(
    known: PriceChanges,
    proposal_id: UUID,
    *,
    tenant_id: TenantId,
    user_id: UserId | None,
    why: str,
    now: datetime,
) -> list[LeasePriceDeclined | LeasePriceWithdrawn]:
    """Decide that a price comes to nothing: whoever proposed it withdraws it so.

    Raises: ProposalUnknown, ProposalOver, TextUnreadable; NotYourProposal of who is not asked.
    """
    proposal = known.named(proposal_id)
    proposed = proposal.proposed
    need_text(why, length_max=WHY_LENGTH_MAX)
    if tenant_id not in proposed.of:
        raise NotYourProposal()
    ended: tuple[ProposalState, ...] = ("declined", "withdrawn")
    if proposal.state in ended:
        return []
    if not proposal.is_open(now=now):
        raise ProposalOver(state=proposal.state, answer_by=proposed.answer_by)
    if tenant_id == proposed.tenant_id:
        return [
            LeasePriceWithdrawn(
                lease_id=proposed.lease_id,
                proposal_id=proposal_id,
                tenant_id=tenant_id,
                user_id=user_id,
                at=now,
            )
        ]
    return [
        LeasePriceDeclined(
            lease_id=proposed.lease_id,
            proposal_id=proposal_id,
            tenant_id=tenant_id,
            user_id=user_id,
            why=why.strip(),
            at=now,
        )
    ]


def reprice(
    lease: LeaseState, proposed: LeasePriceProposed, *, now: datetime
) -> list[LeaseRepriced]:
    """Return that the lease has another price from then on, once."""
    if any(each.proposal_id == proposed.proposal_id for each in lease.repriced):
        return []
    return [
        LeaseRepriced(
            lease_id=LeaseId(lease.terms.lease_id),
            market=lease.terms.market,
            proposal_id=proposed.proposal_id,
            before=lease.price_at(proposed.since),
            price=proposed.price,
            since=proposed.since,
            at=now,
        )
    ]
