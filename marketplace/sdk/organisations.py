"""`offpeak tenants`, `units`, `members`, `invitations`: who takes part, for who looks after it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from .session import Session, Yes, confirm, session_of
from .spoken import length_of

tenants = typer.Typer(help="Organisations that take part.", no_args_is_help=True)
units = typer.Typer(help="Units of an organisation, which bid and pay.", no_args_is_help=True)
members = typer.Typer(help="People of an organisation, and their roles.", no_args_is_help=True)
invitations = typer.Typer(help="Invitations to an organisation.", no_args_is_help=True)

Tenant = Annotated[
    str | None, typer.Option(help="short name or id of an organisation; your own otherwise")
]
Role = Annotated[
    list[str],
    typer.Option(help="owner, operator, consumer, finance or auditor; may be given repeatedly"),
]
Unit = Annotated[UUID | None, typer.Option(help="the unit they bid for")]
Mail = Annotated[bool, typer.Option("--mail", help="send the link by mail instead of showing it")]
For = Annotated[str, typer.Option("--for", help="how long the link works: 7d, at most 30d")]

TENANTS = (
    ("slug", "short name"),
    ("title", "name"),
    ("currency", "currency"),
    ("registered_at", "joined"),
    ("tenant_id", "id"),
)
UNITS = (
    ("title", "unit"),
    ("cost_centre", "cost centre"),
    ("registered_at", "since"),
    ("subscriber_id", "id"),
)
MEMBERS = (
    ("email", "person"),
    ("title", "name"),
    ("roles", "may act as"),
    ("subscriber_id", "bids for"),
    ("admitted_at", "since"),
    ("user_id", "id"),
)
INVITATIONS = (
    ("email", "person"),
    ("state", "state"),
    ("roles", "to act as"),
    ("sent", "sent by"),
    ("expires_at", "works until"),
    ("invitation_id", "id"),
)


def tenant_of(session: Session, named: str | None) -> str:
    """Return the id of the organisation that a person names; their own where they name none."""
    if named is None:
        return str(session.client.get("me")["tenant_id"])
    try:
        return str(UUID(named))
    except ValueError:
        pass
    for tenant in session.client.all("tenants"):
        if tenant["slug"] == named:
            return str(tenant["tenant_id"])
    raise typer.BadParameter(f"There is no organisation {named!r} that you may see.")


@tenants.command("list")
def list_tenants(context: typer.Context) -> None:
    """List organisations: yours, or all of them if you look after the platform."""
    session = session_of(context)
    session.printer.table(session.client.all("tenants"), TENANTS, empty="No organisations.")


@tenants.command("create")
def create_tenant(
    context: typer.Context,
    slug: Annotated[str, typer.Argument(help="short name, such as ada-labs; it stays")],
    title: Annotated[str, typer.Option(help="its name, as statements show it")],
    currency: Annotated[str, typer.Option(help="of its accounts")] = "USD",
) -> None:
    """Set up an organisation; operators of the platform do."""
    session = session_of(context)
    made = session.client.post("tenants", {"slug": slug, "title": title, "currency": currency})
    session.printer.facts(made, (("tenant_id", "organisation"),))


@units.command("list")
def list_units(context: typer.Context, tenant: Tenant = None) -> None:
    """List the units of an organisation."""
    session = session_of(context)
    rows = session.client.all(f"tenants/{tenant_of(session, tenant)}/subscribers")
    session.printer.table(
        rows, UNITS, empty="No units. Try: offpeak units create NAME --cost-centre C1"
    )


@units.command("create")
def create_unit(
    context: typer.Context,
    title: Annotated[str, typer.Argument(help="its name")],
    cost_centre: Annotated[str, typer.Option(help="as your books name it")],
    tenant: Tenant = None,
) -> None:
    """Set up a unit."""
    session = session_of(context)
    path = f"tenants/{tenant_of(session, tenant)}/subscribers"
    made = session.client.post(path, {"title": title, "cost_centre": cost_centre})
    session.printer.facts(made, (("subscriber_id", "unit"),))


@members.command("list")
def list_members(context: typer.Context, tenant: Tenant = None) -> None:
    """List who may act for an organisation."""
    session = session_of(context)
    rows = session.client.all(f"tenants/{tenant_of(session, tenant)}/members")
    session.printer.table(
        rows, MEMBERS, empty="No members. Try: offpeak members invite ADDRESS --role operator"
    )


@members.command("invite")
def invite_member(
    context: typer.Context,
    email: Annotated[str, typer.Argument(help="their e-mail address")],
    role: Role,
    unit: Unit = None,
    mail: Mail = False,
    length: For = "7d",
    tenant: Tenant = None,
) -> None:
    """Invite somebody. The link is shown this once, unless it goes by mail."""
    _invite(session_of(context), email, role, unit, mail, length, tenant)


@members.command("set-roles")
def set_roles(
    context: typer.Context,
    person: Annotated[str, typer.Argument(help="e-mail address or id of a member")],
    role: Role,
    unit: Annotated[
        str | None, typer.Option(help="id of the unit they bid for, or none; as it is otherwise")
    ] = None,
    tenant: Tenant = None,
) -> None:
    """Say what a member may do; roles that are not named are taken away."""
    session = session_of(context)
    whose = tenant_of(session, tenant)
    known = _member(session, whose, person)
    chosen = known["subscriber_id"] if unit is None else None if unit == "none" else unit
    asked: dict[str, Any] = {"roles": role, "subscriber_id": chosen}
    done = session.client.patch(f"tenants/{whose}/members/{known['user_id']}", asked)
    session.printer.done(done, "Changed.")


@members.command("remove")
def remove_member(
    context: typer.Context,
    person: Annotated[str, typer.Argument(help="e-mail address or id of a member")],
    tenant: Tenant = None,
    yes: Yes = False,
) -> None:
    """End a membership; the person's tokens for the organisation stop working."""
    session = session_of(context)
    whose = tenant_of(session, tenant)
    known = _member(session, whose, person)
    confirm(session, f"Remove {known['email'] or person}?", yes=yes)
    done = session.client.delete(f"tenants/{whose}/members/{known['user_id']}")
    session.printer.done(done, "Removed.")


@members.command("unlock")
def unlock_member(
    context: typer.Context,
    person: Annotated[str, typer.Argument(help="e-mail address or id of a member")],
    tenant: Tenant = None,
    yes: Yes = False,
) -> None:
    """Remove the second factor that a member has lost; their password is enough from then on."""
    session = session_of(context)
    whose = tenant_of(session, tenant)
    known = _member(session, whose, person)
    confirm(session, f"Remove the second factor of {known['email'] or person}?", yes=yes)
    done = session.client.delete(f"tenants/{whose}/members/{known['user_id']}/second-factor")
    told = "They are told by mail." if done["mailed"] else "Tell them: no mail was sent."
    session.printer.done(done, f"Removed. {told}")


@invitations.command("list")
def list_invitations(context: typer.Context, tenant: Tenant = None) -> None:
    """List invitations, newest first; those that ended too."""
    session = session_of(context)
    rows = session.client.all(f"tenants/{tenant_of(session, tenant)}/invitations")
    session.printer.table(rows, INVITATIONS, empty="No invitations yet.")


@invitations.command("create")
def create_invitation(
    context: typer.Context,
    email: Annotated[str, typer.Argument(help="their e-mail address")],
    role: Role,
    unit: Unit = None,
    mail: Mail = False,
    length: For = "7d",
    tenant: Tenant = None,
) -> None:
    """Invite somebody, as `offpeak members invite` does."""
    _invite(session_of(context), email, role, unit, mail, length, tenant)


@invitations.command("revoke")
def revoke_invitation(context: typer.Context, invitation: UUID, tenant: Tenant = None) -> None:
    """Take an invitation back: its link works no more."""
    session = session_of(context)
    whose = tenant_of(session, tenant)
    done = session.client.delete(f"tenants/{whose}/invitations/{invitation}")
    session.printer.done(done, "Revoked.")


def _invite(
    session: Session,
    email: str,
    role: list[str],
    unit: UUID | None,
    mail: bool,
    length: str,
    tenant: str | None,
) -> None:
    asked: dict[str, Any] = {
        "email": email,
        "roles": role,
        "valid_seconds": length_of(length),
        "send": "mail" if mail else "link",
    }
    if unit is not None:
        asked["subscriber_id"] = str(unit)
    whose = tenant_of(session, tenant)
    made = session.client.post(f"tenants/{whose}/invitations", asked)
    link = (("link", "link, shown once"),)
    facts = (("invitation_id", "invitation"), *(() if mail else link), ("expires_at", "until"))
    session.printer.facts(made, facts)


def _member(session: Session, tenant_id: str, person: str) -> dict[str, Any]:
    """Return the member with this address or id."""
    for member in session.client.all(f"tenants/{tenant_id}/members"):
        if person.lower() in (str(member["email"]).lower(), member["user_id"]):
            return member
    raise typer.BadParameter(f"{person!r} is no member of that organisation.")
