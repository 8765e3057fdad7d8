"""Roles that only somebody with a second factor may act in, where the installation asks for one.

Whoever has such a role and no second factor is nobody's actor yet: pages lead to the one that sets
it up, and the API refuses tokens and sessions alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from allauth.mfa.models import Authenticator
from django.conf import settings

from ledger.domain.events import Role
from ledger.domain.ids import UserId
from ledger.domain.refusal import Forbidden

FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""Recovery codes are for who has lost one of these, and none by themselves."""


class SecondFactorMissing(Forbidden):
    """Your role here needs a second factor, and you have none yet.

    Sign in and set one up; your tokens work from then on.
    """


def lacking(people: Iterable[tuple[UserId | None, Iterable[Role]]]) -> set[UserId]:
    """Return those of some people, given with their roles, that may not act yet."""
    needed = settings.SECOND_FACTOR_ROLES
    asked = {user for user, roles in people if user and not needed.isdisjoint(roles)}
    if not asked:
        return set()
    has = Authenticator.objects.filter(user_id__in=asked, type__in=FACTORS)
    return asked - {UserId(user) for user in has.values_list("user_id", flat=True)}
