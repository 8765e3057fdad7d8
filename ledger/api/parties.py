"""Who am I, and who else takes part: tenants, business units, members."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import commands, inviting, queries, unlocking
from ledger.access import Actor
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.parties import ROLES, tenant_id_of
from ledger.domain.tokens import ROLES_OF_SCOPE
from ledger.models import MemberRow, Person, SubscriberRow, TenantRow
from ledger.rest import ANY_SCOPE, Body, Endpoint, MomentField, TextField, paginate
from ledger.rest.schema import WrittenAt


class RegisterTenant(Body):
    """An organisation that joins."""

    slug = TextField(max_length=40)
    title = TextField(max_length=120)
    currency = TextField(max_length=3)


class AddSubscriber(Body):
    """A business unit, charged to its own cost centre."""

    title = TextField(max_length=120)
    cost_centre = TextField(max_length=60)


class AdmitMember(Body):
    """A person, by e-mail address, and what they may do."""

    email = serializers.EmailField(max_length=254)
    roles = serializers.ListField(
        child=serializers.ChoiceField(ROLES), allow_empty=False, max_length=len(ROLES)
    )
    subscriber_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class ChangeMember(Body):
    """What a member may do from now on, and for which unit they bid."""

    roles = serializers.ListField(
        child=serializers.ChoiceField(ROLES), allow_empty=False, max_length=len(ROLES)
    )
    subscriber_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class TenantShown(serializers.ModelSerializer[TenantRow]):
    """A tenant as answered."""

    registered_at = MomentField()

    class Meta:
        model = TenantRow
        fields = ("tenant_id", "slug", "title", "currency", "is_platform", "registered_at")


class SubscriberShown(serializers.ModelSerializer[SubscriberRow]):
    """A business unit as answered."""

    registered_at = MomentField()

    class Meta:
        model = SubscriberRow
        fields = ("subscriber_id", "title", "cost_centre", "registered_at")


class MeShown(serializers.Serializer[Any]):
    """Who asks, and what they may do."""

    tenant_id = serializers.UUIDField()
    title = serializers.CharField()
    user_id = serializers.UUIDField(allow_null=True)
    host_id = serializers.UUIDField(allow_null=True)
    subscriber_id = serializers.UUIDField(allow_null=True)
    roles = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    is_platform = serializers.BooleanField()


class MemberShown(serializers.Serializer[Any]):
    """A member as answered."""

    user_id = serializers.UUIDField()
    email = serializers.EmailField(allow_null=True)
    title = serializers.CharField(allow_null=True)
    subscriber_id = serializers.UUIDField(allow_null=True)
    roles = serializers.ListField(child=serializers.CharField())
    admitted_at = MomentField()


class TenantWritten(WrittenAt):
    """A tenant, and the position to read it at."""

    tenant_id = serializers.UUIDField()


class SubscriberWritten(WrittenAt):
    """A business unit, and the position to read it at."""

    subscriber_id = serializers.UUIDField()


class MemberWritten(WrittenAt):
    """A member, and the position to read them at."""

    user_id = serializers.UUIDField()


class SecondFactorRemovedShown(WrittenAt):
    """Whether the person was told by mail, and the position at which it was removed."""

    mailed = serializers.BooleanField()


class Me(Endpoint):
    """Who is asking, and what they may do."""

    scopes = {"GET": ANY_SCOPE}
    reads = ("ledger.parties", "ledger.tokens")

    @extend_schema(responses=MeShown)
    def get(self, request: Request) -> Response:
        """Return the actor, with the scopes that token and roles leave."""
        actor = self.actor
        usable = [scope for scope in ROLES_OF_SCOPE if actor.may(scope)]
        return Response(
            {
                "tenant_id": actor.tenant_id,
                "title": actor.title,
                "user_id": actor.user_id,
                "host_id": actor.host_id,
                "subscriber_id": actor.subscriber_id,
                "roles": sorted(actor.roles),
                "scopes": usable,
                "is_platform": actor.is_platform,
            }
        )


class Tenants(Endpoint):
    """The organisations that the actor may see."""

    scopes = {"GET": "market:read", "POST": "admin"}
    reads = ("ledger.parties",)

    @extend_schema(responses=TenantShown(many=True))
    def get(self, request: Request) -> Response:
        """List them by slug."""
        return self.page(queries.tenants(self.actor), TenantShown, ("slug", "tenant_id"))

    @extend_schema(request=RegisterTenant, responses={201: TenantWritten})
    def post(self, request: Request) -> Response:
        """Register an organisation; the platform's operators do."""
        asked = self.body(RegisterTenant)
        self.actor.need_platform()
        position = commands.register_tenant(
            self.store(), **asked, by=self.meta(), now=timezone.now()
        )
        return Response(
            {"tenant_id": tenant_id_of(asked["slug"]), "position": position}, status=201
        )


class TenantDetail(Endpoint):
    """One organisation."""

    scopes = {"GET": "market:read"}
    reads = ("ledger.parties",)

    @extend_schema(responses=TenantShown)
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Show it."""
        return Response(TenantShown(queries.tenant(self.actor, TenantId(tenant_id))).data)


class Subscribers(Endpoint):
    """The business units of an organisation: the actor's own where none is named."""

    scopes = {"GET": "market:read", "POST": "admin"}
    reads = ("ledger.parties",)

    @extend_schema(responses=SubscriberShown(many=True))
    def get(self, request: Request, tenant_id: UUID | None = None) -> Response:
        """List them by cost centre."""
        order = ("cost_centre", "subscriber_id")
        whose = _seen(self.actor, tenant_id)
        return self.page(queries.subscribers(self.actor, whose), SubscriberShown, order)

    @extend_schema(request=AddSubscriber, responses={201: SubscriberWritten})
    def post(self, request: Request, tenant_id: UUID | None = None) -> Response:
        """Set up a business unit."""
        asked = self.body(AddSubscriber)
        subscriber_id = SubscriberId(uuid5(self.command_id, "subscriber"))
        position = commands.add_subscriber(
            self.store(),
            tenant_id=_run(self.actor, tenant_id),
            subscriber_id=subscriber_id,
            **asked,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"subscriber_id": subscriber_id, "position": position}, status=201)


class Members(Endpoint):
    """The people who may act for an organisation: the actor's own where none is named."""

    scopes = {"GET": "admin", "POST": "admin"}
    reads = ("ledger.parties",)

    @extend_schema(responses=MemberShown(many=True))
    def get(self, request: Request, tenant_id: UUID | None = None) -> Response:
        """List them, the longest-standing first."""
        rows = queries.members(self.actor, _run(self.actor, tenant_id))
        order = ("admitted_at", "member_id")
        page = paginate(rows, lambda row: row, order, query=request.query_params)
        people = queries.people(row.user_id for row in page["data"])
        page["data"] = [_member(row, people.get(row.user_id)) for row in page["data"]]
        return Response(page)

    @extend_schema(request=AdmitMember, responses={201: MemberWritten})
    def post(self, request: Request, tenant_id: UUID | None = None) -> Response:
        """Admit somebody without asking them, or change what they may do."""
        asked = self.body(AdmitMember)
        whose = _run(self.actor, tenant_id)
        user_id = UserId(inviting.person_to_admit(asked.pop("email"), whose).id)
        position = commands.admit_member(
            self.store(f"tenant-{whose}"),
            tenant_id=whose,
            user_id=user_id,
            **asked,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"user_id": user_id, "position": position}, status=201)


class MemberDetail(Endpoint):
    """One membership."""

    scopes = {"PATCH": "admin", "DELETE": "admin"}
    reads = ("ledger.parties",)

    @extend_schema(request=ChangeMember, responses=WrittenAt)
    def patch(self, request: Request, user_id: UUID, tenant_id: UUID | None = None) -> Response:
        """Change a member's roles and unit."""
        asked = self.body(ChangeMember)
        whose = _run(self.actor, tenant_id)
        position = commands.change_member(
            self.store(f"tenant-{whose}"),
            tenant_id=whose,
            user_id=UserId(user_id),
            **asked,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})

    @extend_schema(responses=WrittenAt)
    def delete(self, request: Request, user_id: UUID, tenant_id: UUID | None = None) -> Response:
        """End a membership."""
        whose = _run(self.actor, tenant_id)
        position = commands.remove_member(
            self.store(f"tenant-{whose}"),
            tenant_id=whose,
            user_id=UserId(user_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class SecondFactor(Endpoint):
    """The second factor of a member's log-in."""

    scopes = {"DELETE": "admin"}
    reads = ("ledger.parties",)
    one_append = True  # a mail server is waited for, and the log must not wait with us

    @extend_schema(responses=SecondFactorRemovedShown)
    def delete(self, request: Request, user_id: UUID, tenant_id: UUID | None = None) -> Response:
        """Remove one that is lost; the person is told by mail where mail is set up."""
        done = unlocking.remove_second_factor(
            queries.tenant_run_by(self.actor, tenant_id),
            UserId(user_id),
            actor=self.actor,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"mailed": done.mailed, "position": done.position})


def _seen(actor: Actor, tenant_id: UUID | None) -> TenantId:
    """Return which organisation is meant, if the actor may see it. Raises: TenantUnknown."""
    if tenant_id is None:
        return actor.tenant_id
    return TenantId(queries.tenant(actor, TenantId(tenant_id)).tenant_id)


def _run(actor: Actor, tenant_id: UUID | None) -> TenantId:
    """Return which organisation is meant, if the actor may look after it."""
    if tenant_id is None:
        return actor.tenant_id
    return TenantId(queries.tenant_run_by(actor, tenant_id).tenant_id)


def _member(row: MemberRow, person: Person | None) -> dict[str, Any]:
    return {
        "user_id": row.user_id,
        "email": person.email if person else None,
        "title": person.title if person else None,
        "subscriber_id": row.subscriber_id,
        "roles": row.roles,
        "admitted_at": MomentField().to_representation(row.admitted_at),
    }
