"""Who takes part: a tenant, its business units, and the people who may act for it.

A tenant's id derives from its slug, so two tenants cannot have one slug, and the platform's own
tenant is the one with the slug `platform`, so there cannot be two of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, assert_never, get_args
from uuid import UUID, uuid5

from ledger.domain import invitations
from ledger.domain.events import (
    InvitationAccepted,
    InvitationRevoked,
    MemberAdmitted,
    MemberInvited,
    MemberRemoved,
    PartyEvent,
    Role,
    SecondFactorRemoved,
    SubscriberRegistered,
    TenantRegistered,
)
from ledger.domain.ids import InvitationId, SubscriberId, TenantId, UserId
from ledger.domain.invitations import (
    AlreadyMember,
    Invitation,
    InvitationForAnother,
    InvitationMadeBefore,
    InvitationUnknown,
)
from ledger.domain.money import CurrencyUnknown
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.tokens import Written

PLATFORM_SLUG = "platform"
TITLE_LENGTH_MAX = 120
COST_CENTRE_LENGTH_MAX = 60
SUBSCRIBERS_MAX = 1_000
MEMBERS_MAX = 10_000
ROLES: tuple[Role, ...] = get_args(Role)

_TENANTS = UUID("6f66660a-7065-5b6b-8074-656e616e7473")
_SLUG = re.compile(r"[a-z][a-z0-9-]{1,38}[a-z0-9]")
_CURRENCY = re.compile(r"[A-Z]{3}")


def tenant_id_of(slug: str) -> TenantId:
    """Return the id of the tenant that has, or will have, this slug."""
    return TenantId(uuid5(_TENANTS, slug))


PLATFORM_ID = tenant_id_of(PLATFORM_SLUG)


def member_id_of(tenant_id: UUID, user_id: UUID) -> UUID:
    """Return the id of a membership."""
    return uuid5(tenant_id, str(user_id))


class SlugUnreadable(Invalid):
    """A short name is 3 to 40 lower-case letters, digits and hyphens, and starts with a letter."""


class SlugTaken(Refusal):
    """Another organisation has that slug already.

    Choose another.
    """


class TitleMissing(Invalid):
    """A title is needed, of at most 120 characters."""


class CostCentreUnreadable(Invalid):
    """A cost centre is 1 to 60 characters."""


class CostCentreTaken(Refusal):
    """Another business unit of the organisation has that cost centre already."""


class SubscriberIdTaken(Refusal):
    """A business unit with this id was set up before, with other terms."""


class TooManySubscribers(Refusal):
    """An organisation has at most a thousand business units."""


class TooManyMembers(Refusal):
    """An organisation has at most ten thousand members."""


class RolesUnknown(Invalid):
    """A member needs at least one role, and each must be one of those in `known`."""


class LastOperator(Refusal):
    """An organisation must keep one operator.

    Give the role to somebody else first.
    """


class TenantUnknown(Unknown):
    """There is no such organisation."""


class SubscriberUnknown(Unknown):
    """There is no such business unit in this organisation."""


class MemberUnknown(Unknown):
    """That person is no member of this organisation."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organisation as its stream tells it. members: by person, as last admitted."""

    STREAM: ClassVar[str] = "tenant"

    registered: TenantRegistered
    subscribers: Mapping[SubscriberId, SubscriberRegistered] = field(default_factory=dict)
    members: Mapping[UserId, MemberAdmitted] = field(default_factory=dict)
    invitations: Mapping[InvitationId, Invitation] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: Tenant | None, event: PartyEvent, /) -> Tenant:
        """Return the tenant after `event`."""
        if isinstance(event, TenantRegistered):
            return cls(event)
        assert state is not None
        match event:
            case SubscriberRegistered():
                return replace(state, subscribers={**state.subscribers, event.subscriber_id: event})
            case MemberAdmitted():
                return replace(state, members={**state.members, event.user_id: event})
            case MemberRemoved():
                others = {k: v for k, v in state.members.items() if k != event.user_id}
                return replace(state, members=others)
            case SecondFactorRemoved():
                return state
            case MemberInvited():
                return state._with_invitation(Invitation(event))
            case InvitationAccepted():
                invitation = state.invitations[event.invitation_id]
                return state._with_invitation(replace(invitation, ended="accepted"))
            case InvitationRevoked():
                invitation = state.invitations[event.invitation_id]
                return state._with_invitation(replace(invitation, ended="revoked"))
            case _:
                assert_never(event)

    def _with_invitation(self, invitation: Invitation) -> Tenant:
        known = {**self.invitations, invitation.made.invitation_id: invitation}
        return replace(self, invitations=known)

    @property
    def tenant_id(self) -> TenantId:
        """Return the tenant's id."""
        return self.registered.tenant_id

    def roles_of(self, user_id: UserId) -> frozenset[Role]:
        """Return what a person may do here; nothing for somebody who is no member."""
        member = self.members.get(user_id)
        return frozenset(member.roles) if member else frozenset()

    def add_subscriber(
        self, *, subscriber_id: SubscriberId, title: str, cost_centre: str, now: datetime
    ) -> list[SubscriberRegistered]:
        """Set up a business unit, charged to its own cost centre."""
        asked = SubscriberRegistered(
            tenant_id=self.tenant_id,
            subscriber_id=subscriber_id,
            title=_title(title),
            cost_centre=cost_centre.strip(),
            at=now,
        )
        if not 0 < len(asked.cost_centre) <= COST_CENTRE_LENGTH_MAX:
            raise CostCentreUnreadable()
        before = self.subscribers.get(subscriber_id)
        if before is not None:
            if before == replace(asked, at=before.at):
                return []
            raise SubscriberIdTaken(subscriber_id=subscriber_id)
        if any(each.cost_centre == asked.cost_centre for each in self.subscribers.values()):
            raise CostCentreTaken(cost_centre=asked.cost_centre)
        if len(self.subscribers) >= SUBSCRIBERS_MAX:
            raise TooManySubscribers(subscribers_max=SUBSCRIBERS_MAX)
        return [asked]

    def admit(
        self,
        *,
        user_id: UserId,
        roles: Sequence[str],
        subscriber_id: SubscriberId | None,
        now: datetime,
    ) -> list[MemberAdmitted | InvitationRevoked]:
        """Let a person act for the tenant in these roles, or change a member's roles.

        Whoever stops being an operator leaves no link behind that lets others in.
        """
        asked = MemberAdmitted(
            tenant_id=self.tenant_id,
            user_id=user_id,
            subscriber_id=subscriber_id,
            roles=_roles(roles),
            at=now,
        )
        if subscriber_id is not None and subscriber_id not in self.subscribers:
            raise SubscriberUnknown(subscriber_id=subscriber_id)
        before = self.members.get(user_id)
        if before is not None and before == replace(asked, at=before.at):
            return []
        if before is None and len(self.members) >= MEMBERS_MAX:
            raise TooManyMembers(members_max=MEMBERS_MAX)
        if "operator" in asked.roles:
            return [asked]
        self._need_another_operator(than=user_id)
        return [asked, *self._revoked(by=user_id, now=now)]

    def change_member(
        self,
        *,
        user_id: UserId,
        roles: Sequence[str],
        subscriber_id: SubscriberId | None,
        now: datetime,
    ) -> list[MemberAdmitted | InvitationRevoked]:
        """Change what somebody may do who is a member already."""
        if user_id not in self.members:
            raise MemberUnknown(user_id=user_id)
        return self.admit(user_id=user_id, roles=roles, subscriber_id=subscriber_id, now=now)

    def remove(self, *, user_id: UserId, now: datetime) -> list[MemberRemoved | InvitationRevoked]:
        """End a membership; no link made by or for the person works any more."""
        if user_id not in self.members:
            raise MemberUnknown(user_id=user_id)
        self._need_another_operator(than=user_id)
        removed = MemberRemoved(tenant_id=self.tenant_id, user_id=user_id, at=now)
        return [removed, *self._revoked(by=user_id, of=user_id, now=now)]

    def remove_second_factor(self, *, user_id: UserId, now: datetime) -> list[SecondFactorRemoved]:
        """Let a member who lost their second factor in without one."""
        if user_id not in self.members:
            raise MemberUnknown(user_id=user_id)
        return [SecondFactorRemoved(tenant_id=self.tenant_id, user_id=user_id, at=now)]

    def invite(
        self,
        *,
        invitation_id: InvitationId,
        user_id: UserId,
        invited_by: UserId,
        roles: Sequence[str],
        subscriber_id: SubscriberId | None,
        by_mail: bool,
        written: Written,
        expires_at: datetime,
        now: datetime,
    ) -> list[InvitationRevoked | MemberInvited]:
        """Let a person join by a link. An earlier link of theirs stops working."""
        if invitation_id in self.invitations:
            raise InvitationMadeBefore(invitation_id=invitation_id)
        asked = MemberInvited(
            tenant_id=self.tenant_id,
            invitation_id=invitation_id,
            user_id=user_id,
            invited_by=invited_by,
            roles=_roles(roles),
            subscriber_id=subscriber_id,
            by_mail=by_mail,
            prefix=written.prefix,
            sha256=written.sha256,
            expires_at=expires_at,
            at=now,
        )
        invitations.need_life(expires_at, now=now)
        if subscriber_id is not None and subscriber_id not in self.subscribers:
            raise SubscriberUnknown(subscriber_id=subscriber_id)
        if user_id in self.members:
            raise AlreadyMember(user_id=user_id)
        earlier = self._revoked(of=user_id, now=now)
        if not earlier:
            invitations.need_room(self.invitations.values(), now=now)
        return [*earlier, asked]

    def revoke_invitation(
        self, *, invitation_id: InvitationId, now: datetime
    ) -> list[InvitationRevoked]:
        """Take an invitation back; one that was taken back before stays so."""
        invitation = self._invitation(invitation_id)
        if invitation.ended == "revoked":
            return []
        if invitation.ended == "accepted":
            invitation.need_open(now=now)
        return [invitation.revoked(now=now)]

    def accept_invitation(
        self, *, invitation_id: InvitationId, user_id: UserId, now: datetime
    ) -> list[InvitationAccepted | MemberAdmitted | InvitationRevoked]:
        """Let the invited person in, in the roles of the invitation.

        Who has become a member otherwise in the meantime keeps the roles they have.
        """
        invitation = self._invitation(invitation_id)
        made = invitation.made
        invitation.need_open(now=now)
        if made.user_id != user_id:
            raise InvitationForAnother()
        accepted = InvitationAccepted(tenant_id=self.tenant_id, invitation_id=invitation_id, at=now)
        if user_id in self.members:
            return [accepted]
        admitted = self.admit(
            user_id=user_id, roles=made.roles, subscriber_id=made.subscriber_id, now=now
        )
        return [accepted, *admitted]

    def _invitation(self, invitation_id: InvitationId) -> Invitation:
        invitation = self.invitations.get(invitation_id)
        if invitation is None:
            raise InvitationUnknown()
        return invitation

    def _revoked(
        self, *, by: UserId | None = None, of: UserId | None = None, now: datetime
    ) -> list[InvitationRevoked]:
        """Return what takes back the open invitations made by one person, and those of another."""
        return [
            each.revoked(now=now)
            for each in self.invitations.values()
            if each.ended is None and (each.made.invited_by == by or each.made.user_id == of)
        ]

    def _need_another_operator(self, *, than: UserId) -> None:
        operators = {who for who in self.members if "operator" in self.roles_of(who)}
        if operators == {than}:
            raise LastOperator(user_id=than)


def register(
    state: Tenant | None, *, slug: str, title: str, currency: str, now: datetime
) -> list[TenantRegistered]:
    """Let an organisation join; asking again on the same terms changes nothing.

    Raises: SlugUnreadable, TitleMissing, CurrencyUnknown, SlugTaken.
    """
    if not _SLUG.fullmatch(slug):
        raise SlugUnreadable(slug=slug[:60])
    if not _CURRENCY.fullmatch(currency):
        raise CurrencyUnknown(currency=currency[:10])
    asked = TenantRegistered(
        tenant_id=tenant_id_of(slug),
        slug=slug,
        title=_title(title),
        currency=currency,
        is_platform=slug == PLATFORM_SLUG,
        at=now,
    )
    if state is None:
        return [asked]
    if state.registered == replace(asked, at=state.registered.at):
        return []
    raise SlugTaken(slug=slug)


def _title(title: str) -> str:
    if not 0 < len(title.strip()) <= TITLE_LENGTH_MAX:
        raise TitleMissing()
    return title.strip()


def _roles(roles: Sequence[str]) -> tuple[Role, ...]:
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise RolesUnknown(unknown=unknown, known=list(ROLES))
    return tuple(role for role in ROLES if role in roles)
