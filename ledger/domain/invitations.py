"""Invitations: a link by which one person joins one organisation, once and within a time.

An invitation lives in the stream of its organisation, so that accepting it and becoming a member
is one append, and of two who use a link at once only one comes in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ledger.domain.events import InvitationRevoked, MemberInvited
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown

LIFE_DEFAULT = timedelta(days=7)
LIFE_MIN = timedelta(minutes=1)
LIFE_MAX = timedelta(days=30)
OPEN_MAX = 1_000
"""Invitations of an organisation that wait to be accepted."""

State = Literal["open", "accepted", "revoked", "expired"]


class InvitationUnknown(Unknown):
    """There is no such invitation.

    Open the link whole, as it was sent; if it still leads nowhere, ask for a new one.
    """


class InvitationUsed(Refusal):
    """That invitation was accepted already: a link works once.

    If it was you, sign in with your address and password.
    """


class InvitationTakenBack(Refusal):
    """That invitation was taken back.

    Ask whoever invited you for a new one.
    """


class InvitationExpired(Refusal):
    """That invitation has expired.

    Ask whoever invited you for a new one.
    """


class InvitationForAnother(Forbidden):
    """That invitation is for another address than the one you are signed in with.

    Sign out, and open the link again.
    """


class InvitationMadeBefore(Refusal):
    """That invitation was made before, and its link is shown only once.

    If you do not have the link, invite the person again: the old link then stops working.
    """


class InvitationLifeOutOfRange(Invalid):
    """An invitation works for at least a minute and at most 30 days."""


class AlreadyMember(Refusal):
    """That person is a member already.

    Change their roles instead.
    """


class TooManyInvitations(Refusal):
    """An organisation has at most a thousand invitations that wait to be accepted.

    Revoke some that nobody will use.
    """


@dataclass(frozen=True, slots=True)
class Invitation:
    """One invitation, and how it ended; None: it did not yet, though its time may be over."""

    made: MemberInvited
    ended: Literal["accepted", "revoked"] | None = None

    def state(self, *, now: datetime) -> State:
        """Tell how the invitation stands."""
        return state_of(self.ended, self.made.expires_at, now=now)

    def need_open(self, *, now: datetime) -> None:
        """Refuse one that lets nobody in any more.

        Raises: InvitationUsed, InvitationTakenBack, InvitationExpired.
        """
        match self.state(now=now):
            case "accepted":
                raise InvitationUsed()
            case "revoked":
                raise InvitationTakenBack()
            case "expired":
                raise InvitationExpired(expires_at=self.made.expires_at)
            case "open":
                return

    def revoked(self, *, now: datetime) -> InvitationRevoked:
        """Return the fact that it is taken back."""
        return InvitationRevoked(
            tenant_id=self.made.tenant_id, invitation_id=self.made.invitation_id, at=now
        )


def state_of(
    ended: Literal["accepted", "revoked"] | None, expires_at: datetime, *, now: datetime
) -> State:
    """Tell how an invitation stands that ended so, or may be used until then."""
    if ended is not None:
        return ended
    return "expired" if expires_at <= now else "open"


def need_room(known: Iterable[Invitation], *, now: datetime) -> None:
    """Refuse one more invitation where too many wait.

    Raises: TooManyInvitations.
    """
    if sum(each.state(now=now) == "open" for each in known) >= OPEN_MAX:
        raise TooManyInvitations(invitations_max=OPEN_MAX)


def need_life(expires_at: datetime, *, now: datetime) -> None:
    """Refuse a time that is too short or too long.

    Raises: InvitationLifeOutOfRange.
    """
    if not now + LIFE_MIN <= expires_at <= now + LIFE_MAX:
        raise InvitationLifeOutOfRange(expires_at=expires_at)
