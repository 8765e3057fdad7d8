"""Parameters of a request that say which time, and which offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter

from ledger.domain.refusal import Invalid
from ledger.rest import MomentField

AHEAD_DEFAULT = timedelta(days=7)
AHEAD_MAX = timedelta(days=93)
STATES = ("listed", "paused", "withdrawn", "expired")

SPAN = [
    OpenApiParameter("since", str, description="RFC 3339 with an offset; now, if left out"),
    OpenApiParameter("until", str, description="at most 93 days later; 7 days, if left out"),
]


class SpanOutOfBounds(Invalid):
    """`until` must come after `since`, by 93 days at most."""


class ParameterUnreadable(Invalid):
    """A parameter of the address has a value that does not fit: `parameter` says which."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time asked about."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class OffersWanted:
    """Which offers of an owner; empty and None: all."""

    states: tuple[str, ...]
    host_id: UUID | None


def read_span(query: Mapping[str, str], *, now: datetime) -> Span:
    """Read `since` and `until`.

    Raises: SpanOutOfBounds, serializers.ValidationError.
    """
    moment = MomentField()
    since = moment.to_internal_value(query["since"]) if "since" in query else now
    until = moment.to_internal_value(query["until"]) if "until" in query else since + AHEAD_DEFAULT
    if not timedelta(0) < until - since <= AHEAD_MAX:
        raise SpanOutOfBounds(days_max=AHEAD_MAX.days)
    return Span(since, until)


def offers_wanted(query: Mapping[str, str]) -> OffersWanted:
    """Read `state` (several with commas between) and `host`.

    Raises: ParameterUnreadable.
    """
    states = tuple(name for name in query.get("state", "").split(",") if name)
    if not set(states) <= set(STATES):
        raise ParameterUnreadable(parameter="state", known=list(STATES))
    host = query.get("host")
    try:
        return OffersWanted(states, UUID(host) if host else None)
    except ValueError as failure:
        raise ParameterUnreadable(parameter="host") from failure
