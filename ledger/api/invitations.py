"""Invitations of an organisation: by mail, or by a link that is shown once."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import commands, inviting, queries
from ledger.access.visits import site_address
from ledger.domain.ids import InvitationId, TenantId
from ledger.domain.invitations import LIFE_DEFAULT, LIFE_MAX, LIFE_MIN
from ledger.domain.parties import ROLES
from ledger.models import InvitationRow, Person
from ledger.rest import Body, DurationField, Endpoint, MomentField, paginate
from ledger.rest.schema import WrittenAt


class InvitePerson(Body):
    """A person, by e-mail address, and what they may do once they have accepted.

    send: `link` answers the link, which you pass on; `mail` sends it and shows it to nobody.
    """

    email = serializers.EmailField(max_length=254)
    roles = serializers.ListField(
        child=serializers.ChoiceField(ROLES), allow_empty=False, max_length=len(ROLES)
    )
    subscriber_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    valid_seconds = DurationField(
        required=False,
        default=LIFE_DEFAULT,
        seconds_min=int(LIFE_MIN.total_seconds()),
        seconds_max=int(LIFE_MAX.total_seconds()),
    )
    send = serializers.ChoiceField(["link", "mail"], required=False, default="link")


class InvitationShown(serializers.Serializer[Any]):
    """An invitation as answered: never its link."""

    invitation_id = serializers.UUIDField()
    email = serializers.EmailField(allow_null=True)
    roles = serializers.ListField(child=serializers.CharField())
    subscriber_id = serializers.UUIDField(allow_null=True)
    state = serializers.CharField()  # open, accepted, revoked or expired
    sent = serializers.CharField()  # by link or mail
    prefix = serializers.CharField()
    invited_by = serializers.UUIDField()
    invited_at = MomentField()
    expires_at = MomentField()
    accepted_at = MomentField(allow_null=True)
    revoked_at = MomentField(allow_null=True)


class InvitationMade(WrittenAt):
    """An invitation. link: shown this once; null where it went by mail."""

    invitation_id = serializers.UUIDField()
    link = serializers.CharField(required=False, allow_null=True)
    expires_at = MomentField()


class Invitations(Endpoint):
    """The invitations of an organisation that the actor looks after."""

    scopes = {"GET": "admin", "POST": "admin"}
    reads = ("ledger.parties",)
    secret_fields = frozenset({"link"})
    one_append = True  # a mail server is waited for, and the log must not wait with us

    @extend_schema(responses=InvitationShown(many=True))
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """List invitations, the newest first; those that ended too."""
        tenant = queries.tenant_run_by(self.actor, tenant_id)
        rows = queries.invitations(self.actor, tenant.tenant_id)
        order = ("-invited_at", "invitation_id")
        page = paginate(rows, lambda row: row, order, query=request.query_params)
        people = queries.people(row.user_id for row in page["data"])
        now = timezone.now()
        page["data"] = [_shown(row, people.get(row.user_id), now) for row in page["data"]]
        return Response(page)

    @extend_schema(request=InvitePerson, responses={201: InvitationMade})
    def post(self, request: Request, tenant_id: UUID) -> Response:
        """Invite a person. An earlier invitation of theirs that is open stops working."""
        asked = self.body(InvitePerson)
        tenant = queries.tenant_run_by(self.actor, tenant_id)
        made = inviting.invite(
            tenant,
            inviting.Asked(
                email=asked["email"],
                roles=tuple(asked["roles"]),
                subscriber_id=asked["subscriber_id"],
                life=asked["valid_seconds"],
                mail=asked["send"] == "mail",
            ),
            inviter=self.actor.need_person(),
            site=site_address(request._request),
            by=self.meta(),
            now=timezone.now(),
        )
        answer = {
            "invitation_id": made.invitation_id,
            "link": made.link,
            "expires_at": MomentField().to_representation(made.expires_at),
            "position": made.position,
        }
        return Response(answer, status=201)


class InvitationDetail(Endpoint):
    """One invitation."""

    scopes = {"DELETE": "admin"}
    reads = ("ledger.parties",)

    @extend_schema(responses=WrittenAt)
    def delete(self, request: Request, tenant_id: UUID, invitation_id: UUID) -> Response:
        """Take an invitation back: its link works no more."""
        tenant = queries.tenant_run_by(self.actor, tenant_id)
        position = commands.revoke_invitation(
            self.store(f"tenant-{tenant.tenant_id}"),
            tenant_id=TenantId(tenant.tenant_id),
            invitation_id=InvitationId(invitation_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _shown(row: InvitationRow, person: Person | None, now: datetime) -> dict[str, Any]:
    moment = MomentField().to_representation
    return {
        "invitation_id": row.invitation_id,
        "email": person.email if person else None,
        "roles": row.roles,
        "subscriber_id": row.subscriber_id,
        "state": queries.state_of_invitation(row, now=now),
        "sent": "mail" if row.by_mail else "link",
        "prefix": row.prefix,
        "invited_by": row.invited_by,
        "invited_at": moment(row.invited_at),
        "expires_at": moment(row.expires_at),
        "accepted_at": moment(row.accepted_at) if row.accepted_at else None,
        "revoked_at": moment(row.revoked_at) if row.revoked_at else None,
    }
