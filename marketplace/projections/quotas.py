"""How policies become rows: a log for everybody they concern, and the requests for quota."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args
from uuid import UUID

from ledger.domain.event import Event
from ledger.eventstore import codec
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from listings.domain.permit_events import ListingAllowed
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    GovernanceEvent,
    LimitSet,
    OverrideLifted,
    QuotaOverridden,
    QuotaRequestApproved,
    QuotaRequestDeclined,
    QuotaRequested,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
    UseAllowed,
)
from marketplace.models.quotas import PolicyNodeRow, PolicyRow, QuotaRequestRow

POLICIES: tuple[type[Event], ...] = (*get_args(GovernanceEvent), ListingAllowed)
NOBODY = UUID(int=0)


def project_policies(recorded: Recorded, rows: Rows) -> None:
    """Keep PolicyRow, PolicyNodeRow and QuotaRequestRow equal to the streams of governance."""
    event: Any = recorded.event
    _place(event, rows)
    _request(event, rows)
    about, tenant_id = _about(event, rows)
    rows.add(
        PolicyRow(
            position=recorded.position,
            market=event.market,
            kind=event.name.partition(".")[2],
            about=about,
            tenant_id=tenant_id,
            policy=_written(event),
            actor=recorded.meta.actor[:120],
            why=getattr(event, "why", ""),
            at=event.at,
        )
    )


def _place(event: Event, rows: Rows) -> None:
    match event:
        case CohortPlaced():
            node, is_cohort, cohort = event.cohort, True, event.parent
        case UnitPlaced():
            node, is_cohort, cohort = str(event.subscriber_id), False, event.cohort
        case _:
            return
    key = _key(event.market, node)
    if rows.find(PolicyNodeRow, key) is None:
        rows.add(
            PolicyNodeRow(
                key=key,
                market=event.market,
                node=node,
                is_cohort=is_cohort,
                cohort=cohort,
                tenant_id=event.tenant_id,
                placed_at=event.at,
            )
        )
    else:
        rows.change(
            PolicyNodeRow, key, cohort=cohort, tenant_id=event.tenant_id, placed_at=event.at
        )


def _request(event: Event, rows: Rows) -> None:
    match event:
        case QuotaRequested():
            rows.add(
                QuotaRequestRow(
                    request_id=event.request_id,
                    market=event.market,
                    tenant_id=event.tenant_id,
                    subscriber_id=event.subscriber_id,
                    user_id=event.user_id,
                    gpu_class=event.gpu_class,
                    nominal=event.nominal,
                    starts_at=event.starts_at,
                    ends_at=event.ends_at,
                    why=event.why,
                    state="open",
                    expires_at=event.expires_at,
                    asked_at=event.at,
                )
            )
        case QuotaRequestApproved():
            rows.change(
                QuotaRequestRow,
                event.request_id,
                state="approved",
                token_id=event.token_id,
                token_expires_at=event.expires_at,
                decided_at=event.at,
            )
        case QuotaRequestDeclined():
            rows.change(
                QuotaRequestRow,
                event.request_id,
                state="declined",
                answer=event.why,
                decided_at=event.at,
            )
        case QuotaOverridden() if event.request_id is not None:
            rows.change(QuotaRequestRow, event.request_id, state="taken-up", token_id=None)
        case _:
            pass


def _about(event: Any, rows: Rows) -> tuple[str, UUID | None]:
    """Return whom or what a policy speaks of, and the tenant that it concerns; None: everybody."""
    match event:
        case CohortPlaced():
            return event.cohort, event.tenant_id
        case UnitPlaced():
            return str(event.subscriber_id), event.tenant_id
        case QuotaSet() | QuotaOverridden() | ShareWeightSet():
            return event.node, _tenant(event.market, event.node, rows)
        case OverrideLifted():
            found = [
                row
                for row in rows.select(PolicyRow, market=event.market, kind="quota-overridden")
                if row.policy["override_id"] == str(event.override_id)
            ]
            return str(event.override_id), found[-1].tenant_id if found else NOBODY
        case LimitSet():
            return str(event.subject or ""), _limited(event, rows)
        case UseAllowed():
            return event.who or "", _who(event, rows)
        case ListingAllowed():
            return str(event.tenant_id or ""), event.tenant_id
        case QuotaRequested():
            return str(event.request_id), event.tenant_id
        case QuotaRequestApproved() | QuotaRequestDeclined():
            return str(event.request_id), rows.get(QuotaRequestRow, event.request_id).tenant_id
        case _:
            return "", None


def _who(event: UseAllowed, rows: Rows) -> UUID | None:
    if event.who is None:
        return None
    row = rows.find(PolicyNodeRow, _key(event.market, event.who))
    if row is not None:
        return row.tenant_id
    try:
        return UUID(event.who)
    except ValueError:
        return NOBODY


def _limited(event: LimitSet, rows: Rows) -> UUID | None:
    """Return whose people or units a limit is for; NOBODY, whom only the platform sees, if unknown.

    A limit of each, set by the platform, is for everybody to know.
    """
    if event.subject is None or event.tenant_id is not None:
        return event.tenant_id
    if event.scope == "tenant":
        return event.subject
    row = rows.find(PolicyNodeRow, _key(event.market, str(event.subject)))
    return NOBODY if row is None else row.tenant_id


def _tenant(market: str, node: str, rows: Rows) -> UUID | None:
    return rows.get(PolicyNodeRow, _key(market, node)).tenant_id


def _key(market: str, node: str) -> str:
    return f"{market}/{node}"


def _written(event: Event) -> dict[str, Any]:
    """Return the fields of an event as JSON; a token is only for the one who was given it."""
    if isinstance(event, QuotaRequestApproved):
        event = replace(event, token_id=NOBODY)
    said: dict[str, Any] = json.loads(codec.encode(event))
    said.pop("token_id", None)
    return said


PROJECTIONS = (
    Projection(
        name="marketplace.quotas",
        project=project_policies,
        tables=(PolicyRow, PolicyNodeRow, QuotaRequestRow),
        on=names_of(*POLICIES),
    ),
)
