"""Samples that come at the same time, taken together: what `AgentSamples.post` does, for several.

It answers what it can be sure of, batches that are stored and batches that a rule refuses, just as
`AgentSamples.post` would. Everything else (who asks is not known, the body is not right, a version
that is later, an empty bucket) is left to `AgentSamples.post`, before anything was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from ledger.access import Actor, actors_of_tokens
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.rest import throttling
from ledger.rest.asked import Answer, Asked
from ledger.rest.endpoint import caller_of
from ledger.rest.problems import answer_problem
from ledger.rest.rendering import PlainJson
from metering.agent import wire
from metering.api.agent import GRANTS
from metering.ingest.contacts import note_all_seen, raise_alarm
from metering.ingest.rows import read_quickly
from metering.ingest.samples import SampleConflict, Sent, take_together

SCOPE = "agent"


@dataclass(frozen=True, slots=True)
class _Batch:
    """One that is sure to be handled here. place: among those who asked."""

    place: int
    asked: Asked
    caller: str
    sent: Sent


def take_all(asked: Sequence[Asked]) -> list[Answer | None]:
    """Answer requests that came at the same time; None for each that is left to the handler."""
    now = timezone.now()
    actors = actors_of_tokens([each.token for each in asked], now=now)
    batches = [
        batch
        for place, (each, actor) in enumerate(zip(asked, actors, strict=True))
        if isinstance(actor, Actor)
        and actor.may(SCOPE)
        and (batch := _read(place, each, actor)) is not None
    ]
    answers: list[Answer | None] = [None] * len(asked)
    wanted = Counter(batch.caller for batch in batches)
    if not wanted:
        return answers
    per_minute = settings.ENV.throttle_per_minute
    allowed = throttling.take_each(wanted, per_minute=per_minute, now=now)
    batches = [batch for batch in batches if batch.caller in allowed]
    for batch, outcome in zip(batches, _taken([each.sent for each in batches], now), strict=True):
        wanted[batch.caller] -= 1
        left = allowed[batch.caller].before(wanted[batch.caller])
        answers[batch.place] = _answer(batch, outcome, left.headers(), now)
    return answers


def _taken(sent: Sequence[Sent], now: datetime) -> list[int | Refusal]:
    if not sent:
        return []
    with transaction.atomic():
        note_all_seen({each.host_id: each.tenant_id for each in sent}, now=now)
        return take_together(default_store(), GRANTS, sent, now=now)


def _read(place: int, asked: Asked, actor: Actor) -> _Batch | None:
    """Return the batch that is sent, None where something is not as it should be."""
    found = None if asked.key is not None else read_quickly(asked.body)
    if found is None or actor.host_id is None:
        return None
    boot_id, rows, health = found
    sent = Sent(
        host_id=actor.host_id,
        tenant_id=actor.tenant_id,
        boot_id=boot_id,
        rows=rows,
        health=health,
    )
    return _Batch(place, asked, caller_of(actor), sent)


def _answer(
    batch: _Batch, outcome: int | Refusal, allowance: Mapping[str, str], now: datetime
) -> Answer:
    if not isinstance(outcome, Refusal):
        said = wire.dump(wire.Acknowledged(acknowledged_seq=outcome).to_json())
        about = {"Content-Type": "application/json"}
        about |= {**allowance, "X-Request-ID": str(batch.asked.request_id)}
        return Answer(200, about, said)
    if isinstance(outcome, SampleConflict):
        sent = batch.sent
        raise_alarm(outcome, host_id=sent.host_id, tenant_id=sent.tenant_id, now=now)
    problem = answer_problem(
        outcome, instance=batch.asked.path, request_id=str(batch.asked.request_id)
    )
    about = {**dict(problem.headers), "Content-Type": str(problem.content_type)}
    about |= {**allowance, "X-Request-ID": str(batch.asked.request_id)}
    return Answer(problem.status_code, about, PlainJson().render(problem.data))
