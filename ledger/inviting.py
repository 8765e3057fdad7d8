"""Inviting people and letting them in: what an invitation does beside the record.

A link names its invitation by a secret of which only the hash is kept, so it is shown or mailed
once. A link that was mailed proves the address; one that an operator saw does not: the log-in it
makes is vouched for by that operator's organisation, and counts nowhere else without its person.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from smtplib import SMTPException
from uuid import uuid5

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction

from ledger import commands, queries
from ledger.domain import tokens
from ledger.domain.ids import InvitationId, SubscriberId, TenantId, UserId
from ledger.domain.invitations import (
    LIFE_DEFAULT,
    InvitationForAnother,
    InvitationUnknown,
    InvitationUsed,
)
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.models import InvitationRow, Person, TenantRow
from ledger.signin import person_of, set_password

PATH = "/invitations/"
"""Where a link leads; the secret follows."""


class MailNotSetUp(Invalid):
    """This market has no mail server, so it cannot send invitations.

    Make a link and send it yourself, or let an operator of the market set OFFPEAK_MAIL_HOST.
    """


class MailNotSent(Refusal):
    """The mail server did not take the invitation, so it was revoked.

    Look at the address and at `reason`, or invite the person by a link that you send yourself.
    """

    status = 503


class SignInToAccept(Refusal):
    """There is a log-in for that address already.

    Sign in with it, and open the link again.
    """


class AddressNotProved(Refusal):
    """Nobody has proved yet that this log-in belongs to that address.

    Invite the person instead: they join by accepting.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is to be invited, to do what. mail: send the link instead of showing it."""

    email: str
    roles: tuple[str, ...]
    subscriber_id: SubscriberId | None = None
    life: timedelta = LIFE_DEFAULT
    mail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """An invitation that was made. link: shown this once; None where it went by mail."""

    invitation_id: InvitationId
    link: str | None
    expires_at: datetime
    position: Position


def can_mail() -> bool:
    """Tell if this installation has a mail server."""
    return bool(settings.ENV.mail_host)


def invite(
    tenant: TenantRow, asked: Asked, *, inviter: UserId, site: str, by: Meta, now: datetime
) -> Invited:
    """Invite a person to an organisation.

    by: its command id names the invitation, so that asking twice makes one.
    site: the address of this market, which the link begins with.
    Raises: EmailUnreadable, MailNotSetUp, MailNotSent, and what `invite_member` raises.
    """
    if asked.mail and not can_mail():
        raise MailNotSetUp()
    assert by.command_id is not None
    tenant_id = TenantId(tenant.tenant_id)
    invitation_id = InvitationId(uuid5(by.command_id, "invitation"))
    text = tokens.write("invite", secrets.token_bytes(tokens.ENTROPY_BYTES_MIN))
    store, expires_at = default_store(), now + asked.life
    position = commands.invite_member(
        store,
        tenant_id=tenant_id,
        invitation_id=invitation_id,
        user_id=UserId(person_of(asked.email).id),
        invited_by=inviter,
        roles=asked.roles,
        subscriber_id=asked.subscriber_id,
        by_mail=asked.mail,
        written=tokens.read(text),
        expires_at=expires_at,
        by=by,
        now=now,
    )
    link = f"{site}{PATH}{text}"
    if asked.mail:
        try:
            _send(tenant.title, asked.email.strip(), link, expires_at)
        except (OSError, SMTPException) as failure:
            _take_back(store, tenant_id, invitation_id, by=by, now=now)
            raise MailNotSent(reason=_why(failure)) from failure
    return Invited(
        invitation_id=invitation_id,
        link=None if asked.mail else link,
        expires_at=expires_at,
        position=position,
    )


def _take_back(
    store: EventStore, tenant_id: TenantId, invitation_id: InvitationId, *, by: Meta, now: datetime
) -> None:
    commands.revoke_invitation(
        store,
        tenant_id=tenant_id,
        invitation_id=invitation_id,
        by=by.step("mail-not-sent"),
        now=now,
    )


def _send(organisation: str, email: str, link: str, expires_at: datetime) -> None:
    title = " ".join(organisation.split())
    EmailMessage(
        subject=f"Join {title} on Offpeak",
        body=(
            f"You are invited to join {title} on Offpeak, the market for GPU time.\n\n"
            f"Open this link to choose a password, or to sign in if you have a log-in:\n{link}\n\n"
            f"It works once, until {expires_at:%d %B %Y %H:%M} UTC. Whoever has it can join "
            "in your place: do not pass it on.\n"
        ),
        from_email=settings.ENV.mail_from,
        to=[email],
    ).send()


def _why(failure: Exception) -> str:
    """Say why, without what a mail server quotes of the mail."""
    return type(failure).__name__


def invitation_at(text: str) -> tuple[InvitationRow, TenantRow]:
    """Return the invitation whose link has this secret, and its organisation.

    Raises: InvitationUnknown.
    """
    try:
        written = tokens.read(text)
    except Refusal as unreadable:
        raise InvitationUnknown() from unreadable
    return queries.invitation_of_link(sha256=written.sha256)


def invited_person(invitation: InvitationRow) -> Person:
    """Return who is invited."""
    return Person.objects.get(pk=invitation.user_id)


def must_sign_in(person: Person, tenant_id: TenantId) -> bool:
    """Tell if a person has a log-in, or belongs to others who may have given them one.

    A link never changes the log-in of somebody who has one: its maker may have kept it.
    """
    return (
        person.has_usable_password()
        or person.last_login is not None
        or SocialAccount.objects.filter(user=person).exists()
        or queries.is_member_elsewhere(UserId(person.id), tenant_id)
    )


def join_as(person: Person, invitation: InvitationRow, *, now: datetime) -> Position:
    """Make a signed-in person the member they are invited to be.

    Raises: InvitationForAnother, and what `accept_invitation` raises.
    """
    if person.pk != invitation.user_id:
        raise InvitationForAnother()
    user_id, tenant_id = UserId(person.id), TenantId(invitation.tenant_id)
    if invitation.by_mail and person.vouched_by is not None:
        Person.objects.filter(pk=person.pk).update(vouched_by=None)
    return commands.accept_invitation(
        default_store(),
        tenant_id=tenant_id,
        invitation_id=InvitationId(invitation.invitation_id),
        user_id=user_id,
        by=Meta(actor=f"user:{user_id}", tenant_id=tenant_id),
        now=now,
    )


def join_with_password(
    invitation: InvitationRow, *, title: str, password: str, now: datetime
) -> tuple[Person, Position]:
    """Give the invited person a name and a password of their own, and make them a member.

    Both or neither: where the link lets nobody in any more, there is no new log-in either.
    Raises: SignInToAccept, PasswordTooWeak, and what `accept_invitation` raises.
    """
    tenant_id = TenantId(invitation.tenant_id)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=invitation.user_id)
        if must_sign_in(person, tenant_id):
            if invitation.accepted_at is not None:
                raise InvitationUsed()
            raise SignInToAccept()
        person.title = title
        person.vouched_by = None if invitation.by_mail else tenant_id
        person.save(update_fields=["title", "vouched_by"])
        set_password(person, password)
        return person, join_as(person, invitation, now=now)


def person_to_admit(email: str, tenant_id: TenantId) -> Person:
    """Return the person with this address, to be made a member without being asked.

    Raises: EmailUnreadable, AddressNotProved.
    """
    person = person_of(email)
    if person.vouched_by not in (None, tenant_id):
        raise AddressNotProved()
    return person
