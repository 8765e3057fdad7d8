"""Letting somebody back in who has lost their second factor: an operator vouches for them.

A person has one log-in for all organisations they belong to, so an organisation's own operator may
do it only for those who belong to nobody else. It is on record, and the person is told by mail.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from smtplib import SMTPException

import structlog
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction

from ledger import commands, queries
from ledger.access import Actor
from ledger.access.second_factor import FACTORS
from ledger.domain.ids import TenantId, UserId
from ledger.domain.parties import MemberUnknown
from ledger.domain.refusal import Forbidden, Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, Position
from ledger.inviting import can_mail
from ledger.models import Person, TenantRow

log = structlog.get_logger()


class NoSecondFactor(Refusal):
    """That person has no second factor."""


class OwnSecondFactor(Refusal):
    """Your own second factor is changed on your settings page, with a code of it.

    If it is lost, ask another operator.
    """


class LogInOfOthersToo(Forbidden):
    """That person belongs to another organisation as well, whose log-in it is too.

    Ask an operator of the market.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocked:
    """A second factor that was removed. mailed: whether the person was told by mail."""

    position: Position
    mailed: bool


def has_second_factor(user_id: UserId) -> bool:
    """Tell if a person's log-in asks for more than a password."""
    return bool(Authenticator.objects.filter(user_id=user_id, type__in=FACTORS).exists())


def remove_second_factor(
    tenant: TenantRow, user_id: UserId, *, actor: Actor, by: Meta, now: datetime
) -> Unlocked:
    """Remove a member's second factor, and the recovery codes that go with it.

    actor: somebody who may look after the organisation.
    Raises: MemberUnknown, OwnSecondFactor, LogInOfOthersToo, NoSecondFactor.
    """
    tenant_id = TenantId(tenant.tenant_id)
    if actor.user_id == user_id:
        raise OwnSecondFactor()
    if not queries.members(actor, tenant_id).filter(user_id=user_id).exists():
        raise MemberUnknown(user_id=user_id)
    if not actor.is_platform and queries.is_member_elsewhere(user_id, tenant_id):
        raise LogInOfOthersToo()
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=user_id)
        if not has_second_factor(user_id):
            raise NoSecondFactor(user_id=user_id)
        Authenticator.objects.filter(user_id=user_id).delete()
        position = commands.remove_second_factor(
            default_store(), tenant_id=tenant_id, user_id=user_id, by=by, now=now
        )
    return Unlocked(position=position, mailed=_told(person, tenant.title))


def _told(person: Person, organisation: str) -> bool:
    """Tell the person; that they could not be told takes nothing back."""
    if not can_mail():
        return False
    title = " ".join(organisation.split())
    told = EmailMessage(
        subject="Your second factor on Offpeak was removed",
        body=(
            f"An operator of {title}, or of the market, removed the second factor of your log-in "
            "on Offpeak, the market for GPU time. Until you set up another one on the settings "
            "page, your password is enough to sign in.\n\n"
            "If you did not ask for this, change your password and tell the market's operators.\n"
        ),
        from_email=settings.ENV.mail_from,
        to=[person.email],
    )
    try:
        told.send()
    except (OSError, SMTPException) as failure:
        log.warning("mail.not-sent", reason=type(failure).__name__)
        return False
    return True
