"""Who is asking, and what they may see: the one place that makes a queryset for a person.

Every read model that a person is shown names the columns that hold the tenants it belongs to
(`TENANT_COLUMNS`; `<column>__contains` for a column with several). `visible` keeps the rows of
the actor's own tenant; the platform's operators and auditors see all. A model without that
declaration cannot be shown at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from ledger.domain.events import Role
from ledger.domain.ids import HostId, SubscriberId, TenantId, TokenId, UserId
from ledger.domain.refusal import Forbidden
from ledger.domain.tokens import ROLES_OF_SCOPE, Scope, carries
from ledger.eventstore.port import Meta

ModelT = TypeVar("ModelT", bound=Model)


class RoleMissing(Forbidden):
    """Your role in this organisation does not allow that.

    Ask an operator of your organisation to admit you in one of the roles named in `roles`.
    """


class PlatformOnly(Forbidden):
    """Only an operator of the platform itself may do that."""


class PersonNeeded(Forbidden):
    """Only a person may do that, not the agent of a host."""


class ScopeMissing(Forbidden):
    """This token does not carry the scope for that.

    Make a token with the scope named in `scope` on the settings page.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A person acting for a tenant (by session or token), or the agent of one host.

    scopes: None for a session, which may do what its roles allow.
    """

    tenant_id: TenantId
    user_id: UserId | None = None
    host_id: HostId | None = None
    token_id: TokenId | None = None
    subscriber_id: SubscriberId | None = None
    roles: frozenset[Role] = frozenset()
    scopes: frozenset[str] | None = None
    is_platform: bool = False
    title: str = ""

    @property
    def sees_all(self) -> bool:
        """Tell if the actor governs the whole platform."""
        return self.is_platform and bool(self.roles & {"operator", "auditor"})

    @property
    def has_platform_money(self) -> bool:
        """Tell if the actor may open accounts, add funds and let accounts go below zero."""
        return self.is_platform and bool(self.roles & {"finance", "operator"})

    def need(self, *roles: Role) -> None:
        """Refuse unless the actor has one of these roles.

        Raises: RoleMissing.
        """
        if not self.roles & set(roles):
            raise RoleMissing(roles=sorted(roles))

    def need_platform(self) -> None:
        """Refuse anybody but the platform's operators.

        Raises: PlatformOnly.
        """
        if not (self.is_platform and "operator" in self.roles):
            raise PlatformOnly()

    def need_to_run(self, tenant_id: TenantId) -> None:
        """Refuse whoever may not look after an organisation's units, people and invitations.

        Its own operators may, and those of the platform.
        Raises: RoleMissing, PlatformOnly.
        """
        if self.tenant_id == tenant_id:
            self.need("operator")
        else:
            self.need_platform()

    def need_person(self) -> UserId:
        """Return which person acts.

        Raises: PersonNeeded.
        """
        if self.user_id is None:
            raise PersonNeeded()
        return self.user_id

    def may(self, scope: str) -> bool:
        """Tell if `need_scope` would let the actor pass."""
        try:
            self.need_scope(scope)
        except Forbidden:
            return False
        return True

    def need_scope(self, scope: str) -> None:
        """Refuse unless the token carries `scope` and the person's roles allow it.

        A session carries the scopes of its roles; `agent` is for the tokens of hosts alone.
        Raises: ScopeMissing, RoleMissing.
        """
        if self.scopes is not None and not carries(self.scopes, scope):
            raise ScopeMissing(scope=scope)
        if scope == "agent":
            if self.host_id is None:
                raise ScopeMissing(scope=scope)
        else:
            self.need(*ROLES_OF_SCOPE[cast(Scope, scope)])

    def meta(self, *, request_id: UUID | None = None, command_id: UUID | None = None) -> Meta:
        """Return what every event of this actor's request carries."""
        who = f"agent:{self.host_id}" if self.host_id else f"user:{self.user_id}"
        return Meta(
            actor=who,
            tenant_id=self.tenant_id,
            token_id=self.token_id,
            request_id=request_id,
            command_id=command_id,
        )


def visible(actor: Actor, model: type[ModelT]) -> QuerySet[ModelT]:
    """Return the rows of a read model that `actor` may see."""
    columns = cast("tuple[str, ...]", cast(Any, model).TENANT_COLUMNS)
    assert columns, f"{model.__name__} must name at least one tenant column"
    rows = model._base_manager.all()
    if actor.sees_all:
        return rows
    mine = Q()
    for column in columns:
        owner: object = [actor.tenant_id] if column.endswith("__contains") else actor.tenant_id
        mine |= Q(**{column: owner})
    return rows.filter(mine)
