"""A host's agent is enrolled: its owner makes a code, the agent exchanges it for its token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.commands.rotation import issue_once, rotate_token
from ledger.domain import tokens
from ledger.domain.events import Role, TokenIssued
from ledger.domain.ids import EnrolmentId, HostId, TokenId
from ledger.domain.refusal import Forbidden
from ledger.domain.tokens import Token, Written
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together
from listings.domain import enrolments
from listings.domain.enrolments import Enrolment, EnrolmentCodeUnknown
from listings.domain.events import EnrolmentCodeMade, HostEnrolled
from listings.domain.hosts import Host, HostIsRetired, HostUnknown


class TokenOfRentedMachine(Forbidden):
    """The token of a rented machine works as long as the machine: none takes its place."""


def make_enrolment_code(
    store: EventStore, *, enrolment_id: EnrolmentId, host_id: HostId, by: Meta, now: datetime
) -> tuple[EnrolmentCodeMade, Position]:
    """Open an enrolment of a host. The code itself never comes here, only what is kept of it.

    Raises: HostUnknown, HostIsRetired.
    """
    host = load(store, Host, host_id)
    if host is None or by.tenant_id not in (None, host.registered.tenant_id):
        raise HostUnknown(host_id=host_id)
    _need_listed(host)
    made = enrolments.make(
        enrolment_id, host_id=host_id, tenant_id=host.registered.tenant_id, now=now
    )

    def decide(enrolment: Enrolment | None) -> Sequence[EnrolmentCodeMade]:
        return [made] if enrolment is None else []

    return made, record(store, Enrolment, enrolment_id, decide, by=by)


def enrol_host(
    store: EventStore,
    *,
    enrolment_id: EnrolmentId,
    token_id: TokenId,
    written: Written,
    hostname: str,
    by: Meta,
    now: datetime,
) -> tuple[TokenIssued, Position]:
    """Exchange a code for the token of its host; of two who use one at once, one gets it.

    written: what `tokens.read` says of the token's text.
    Raises: EnrolmentCodeUnknown, EnrolmentCodeUsed, EnrolmentCodeExpired, HostIsRetired,
        TokenMadeBefore.
    """
    enrolment = load(store, Enrolment, enrolment_id)
    host = None if enrolment is None else load(store, Host, enrolment.made.host_id)
    if enrolment is None or host is None:
        raise EnrolmentCodeUnknown()
    no_roles: frozenset[Role] = frozenset()
    terms = tokens.issue(
        token_id=token_id,
        tenant_id=enrolment.made.tenant_id,
        holder=enrolment.made.host_id,
        written=written,
        title=f"agent of {host.registered.title}"[: tokens.TITLE_LENGTH_MAX],
        scopes=("agent",),
        roles=no_roles,
        expires_at=None,
        maker=None,
        now=now,
    )

    def use(state: Enrolment | None) -> Sequence[HostEnrolled]:
        assert state is not None
        return state.use(token_id=token_id, hostname=hostname, now=now)

    def listed(state: Host | None) -> Sequence[HostEnrolled]:
        assert state is not None
        _need_listed(state)
        return []

    parts = [
        Part(Enrolment, enrolment_id, use, by.step("enrolment")),
        Part(Host, enrolment.made.host_id, listed, by.step("host"), holds=True),
        Part(Token, token_id, lambda state: issue_once(state, terms), by.step("token")),
    ]
    position = max(record_together(store, parts, whole=True))
    made = load(store, Token, token_id)
    assert made is not None
    return made.issued, position


def rotate_host_token(
    store: EventStore,
    *,
    host_id: HostId,
    token_id: TokenId,
    successor_id: TokenId,
    written: Written,
    by: Meta,
    now: datetime,
) -> tuple[TokenIssued, Position]:
    """Make another token in place of that of a host's agent; see `rotate_token`.

    Raises: TokenOfRentedMachine, and the refusals of `rotate_token`.
    """
    host = load(store, Host, host_id)
    if host is not None and host.registered.source == "burst":
        raise TokenOfRentedMachine()
    return rotate_token(
        store, token_id=token_id, successor_id=successor_id, written=written, by=by, now=now
    )


def _need_listed(host: Host) -> None:
    if host.is_retired:
        raise HostIsRetired()
