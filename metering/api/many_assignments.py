"""Agents that ask at the same time what to run: what `AgentAssignments.get` answers, for several.

Who asks is proved, counted and noted as heard for all of them together; what each host is to run is
looked up as ever. Whatever is unusual is left to `AgentAssignments.get`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.conf import settings
from django.utils import timezone

from ledger.access import Actor, actors_of_tokens
from ledger.rest import throttling
from ledger.rest.asked import Answer, Asked
from ledger.rest.endpoint import caller_of
from metering.agent import wire
from metering.api.agent import assignments_of
from metering.api.many_samples import SCOPE
from metering.ingest.contacts import note_all_seen


def tell_all(asked: Sequence[Asked]) -> list[Answer | None]:
    """Answer requests that came at the same time; None for each that is left to the handler."""
    now = timezone.now()
    actors = actors_of_tokens([each.token for each in asked], now=now)
    known = {
        place: actor
        for place, actor in enumerate(actors)
        if isinstance(actor, Actor)
        and actor.may(SCOPE)
        and actor.host_id is not None
        and asked[place].key is None
        and not asked[place].body
    }
    answers: list[Answer | None] = [None] * len(asked)
    wanted = Counter(caller_of(actor) for actor in known.values())
    if not wanted:
        return answers
    per_minute = settings.ENV.throttle_per_minute
    allowed = throttling.take_each(wanted, per_minute=per_minute, now=now)
    known = {place: actor for place, actor in known.items() if caller_of(actor) in allowed}
    hosts = {actor.host_id: actor.tenant_id for actor in known.values() if actor.host_id}
    note_all_seen(hosts, now=now)
    for place, actor in known.items():
        assert actor.host_id is not None
        caller = caller_of(actor)
        wanted[caller] -= 1
        about = {
            "Content-Type": "application/json",
            **allowed[caller].before(wanted[caller]).headers(),
            "X-Request-ID": str(asked[place].request_id),
        }
        answers[place] = Answer(200, about, wire.dump(assignments_of(actor.host_id).to_json()))
    return answers
