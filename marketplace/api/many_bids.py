"""Bids that come at the same time, placed together: what `Bids.post` does with one, for several.

It answers what it can be sure of, bids that are placed and bids that a rule refuses, just as
`Bids.post` would. Everything else (who asks is not known, the body is not right, there is a choice
of markets, the bucket is empty) is left to `Bids.post`, before anything was written or taken.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any
from uuid import UUID, uuid4, uuid5

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.urls import resolve
from django.utils import timezone
from rest_framework.exceptions import APIException

from ledger.access import Actor, actors_of_tokens
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, Position
from ledger.rest import idempotency, throttling
from ledger.rest.asked import Answer, Asked
from ledger.rest.endpoint import caller_of, checker_of
from ledger.rest.parsing import StrictJson
from ledger.rest.problems import answer_problem
from ledger.rest.rendering import PlainJson
from marketplace.api.shapes import AskBid, terms_of
from marketplace.commands.bids import place_bids
from marketplace.domain.bids.bid import BidTerms
from marketplace.queries.bids import Unit, unit_of
from marketplace.queries.routing import only_market

SCOPE = "bids:write"
PLACED = 201
UNIT_KEPT_SECONDS = 1.0
UNITS_MAX = 10_000


log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Bid:
    """One that is sure to be handled here. place: among those who asked."""

    place: int
    asked: Asked
    actor: Actor
    terms: BidTerms
    by: Meta
    keyed: idempotency.Asked | None


def place_together(asked: Sequence[Asked]) -> list[Answer | None]:
    """Answer requests that came at the same time; None for each that is left to `Bids.post`."""
    now = timezone.now()
    actors = actors_of_tokens([each.token for each in asked], now=now)
    read = [
        _read(place, each, actor, now)
        for place, (each, actor) in enumerate(zip(asked, actors, strict=True))
        if isinstance(actor, Actor) and actor.may(SCOPE)
    ]
    bids = _unless_repeated([bid for bid in read if bid is not None])
    wanted = Counter(caller_of(bid.actor) for bid in bids)
    per_minute = settings.ENV.throttle_per_minute
    allowed = throttling.take_each(wanted, per_minute=per_minute, now=now) if wanted else {}
    bids = _claimed([bid for bid in bids if caller_of(bid.actor) in allowed], now)
    answers: list[Answer | None] = [None] * len(asked)
    if not bids:
        return answers
    outcomes = place_bids(default_store(), [(bid.terms, bid.by) for bid in bids], now=now)
    left = dict(wanted)
    for bid, outcome in zip(bids, outcomes, strict=True):
        caller = caller_of(bid.actor)
        left[caller] -= 1
        headers = allowed[caller].before(left[caller]).headers()
        answers[bid.place] = _answer(bid, outcome, headers)
    _keep(bids, answers, now)
    return answers


def _unless_repeated(bids: Sequence[_Bid]) -> list[_Bid]:
    """Leave out those whose key was used before: `Bids.post` answers them as it did then."""
    known = idempotency.known_each([bid.keyed for bid in bids if bid.keyed is not None])
    return [bid for bid in bids if bid.keyed not in known]


def _claimed(bids: Sequence[_Bid], now: datetime) -> list[_Bid]:
    """Claim keys; leave out a bid whose key somebody else has claimed at this moment."""
    keyed = [bid.keyed for bid in bids if bid.keyed is not None]
    claimed = idempotency.claim_each(keyed, now=now)
    kept = []
    for bid in bids:
        if bid.keyed is None or bid.keyed in claimed:
            kept.append(bid)
        if bid.keyed is not None:
            claimed.discard(bid.keyed)  # of two that came together with one key, the first
    return kept


def _keep(bids: Sequence[_Bid], answers: Sequence[Answer | None], now: datetime) -> None:
    """Keep what was answered to those with a key; a refusal is asked again."""
    kept = []
    for bid in bids:
        answer = answers[bid.place]
        if bid.keyed is not None and answer is not None and answer.status == PLACED:
            kept.append((bid.keyed, answer.status, answer.content.decode()))
    try:
        idempotency.keep_each(kept, now=now)
    except DatabaseError as failure:
        log.warning("answers.not-kept", error=str(failure))  # a repeat makes them again


def _read(place: int, asked: Asked, actor: Actor, now: datetime) -> _Bid | None:
    """Return the bid that is asked for, None where something is not as it should be."""
    try:
        body = checker_of(AskBid).run_validation(StrictJson().parse(BytesIO(asked.body)))
        if "market" in body or "markets" in body:
            return None
        keyed = _keyed(asked, actor)
        command_id = uuid4() if keyed is None else keyed.command_id
        terms = terms_of(
            body,
            bid_id=body.get("bid_id") or uuid5(command_id, "bid"),
            tenant_id=actor.tenant_id,
            user_id=actor.user_id,
            unit=_unit_of(actor, body.get("subscriber_id")),
            market=settings.ENV.market,
            currency=settings.ENV.currency,
        )
    except (APIException, Refusal):
        return None
    routed = only_market(terms, settings.MARKETS)
    if routed is None:
        return None
    by = actor.meta(request_id=asked.request_id, command_id=command_id)
    return _Bid(place, asked, actor, routed, by, keyed)


def _keyed(asked: Asked, actor: Actor) -> idempotency.Asked | None:
    """Return a request by its key, as `Endpoint` names it. Raises: KeyUnreadable."""
    if asked.key is None:
        return None
    return idempotency.asked(
        tenant_id=actor.tenant_id,
        route=f"POST {resolve(asked.path).route}",
        key=asked.key,
        path=asked.path,
        body=asked.body,
        secret_fields=frozenset(),
    )


_units: dict[tuple[object, ...], tuple[float, Unit]] = {}
"""Business units that were found a moment ago: who bids often bids for the same one."""


def _unit_of(actor: Actor, subscriber_id: UUID | None) -> Unit:
    """Return what `unit_of` does; a unit belongs to its organisation for good."""
    key = (actor.tenant_id, actor.subscriber_id, actor.roles, subscriber_id)
    found = _units.get(key)
    if found is not None and time.monotonic() - found[0] < UNIT_KEPT_SECONDS:
        return found[1]
    if len(_units) >= UNITS_MAX:
        _units.clear()
    unit = unit_of(actor, subscriber_id)
    _units[key] = (time.monotonic(), unit)
    return unit


def _answer(bid: _Bid, outcome: Position | Exception, allowance: Mapping[str, str]) -> Answer:
    data: Any
    if isinstance(outcome, Exception):
        problem = answer_problem(
            outcome, instance=bid.asked.path, request_id=str(bid.asked.request_id)
        )
        status, data, headers = problem.status_code, problem.data, dict(problem.headers)
        headers["Content-Type"] = str(problem.content_type)
    else:
        headers = {"Content-Type": "application/json"}
        status = PLACED
        data = {
            "id": bid.terms.bid_id,
            "service_class": bid.terms.service_class,
            "market": bid.terms.market,
            "position": outcome,
        }
    headers |= {**allowance, "X-Request-ID": str(bid.asked.request_id)}
    return Answer(status, headers, PlainJson().render(data))
