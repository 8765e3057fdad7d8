"""Fill an empty installation with the demo's cast and week, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from django.db import transaction

from config.demo.cast import AURORA, PLATFORM
from config.demo.founding import found
from config.demo.pump import Pump
from config.demo.week import DAYS, Week
from config.env import Env
from ledger.commands import money, parties
from ledger.domain.event import Event
from ledger.domain.parties import Tenant
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, EventStore, Meta, NewEvent, Position, Recorded, load
from ledger.following import Policy, Projection, follow_projections
from ledger.models import Checkpoint
from listings.domain.markets import read_markets
from marketplace.domain.facts.events import DECISIONS


def seed(
    store: EventStore,
    *,
    env: Env,
    home: Path,
    policies: Sequence[Policy],
    projections: Sequence[Projection],
    now: datetime,
) -> int:
    """Replay the week into `store` unless it is there; return how many events that were.

    All of it or nothing where the store shares Django's transaction.
    """
    if load(store, Tenant, AURORA.tenant_id) is not None:
        return 0
    ends_at = now.replace(second=0, microsecond=0)
    starts_at = ends_at - timedelta(days=DAYS, hours=1)
    draft = MemoryStore()
    found_platform(draft, env, starts_at)
    pump = Pump(draft, policies)
    shared: AbstractContextManager[None] = (
        transaction.atomic() if store.shares_django_transaction else nullcontext()
    )
    with shared:
        markets = read_markets(env.market, env.markets)
        about: dict[str, Any] = {
            "market": env.market,
            "currency": env.currency,
            "markets": markets,
        }
        found(draft, home=home, now=starts_at, **about)
        pump.run()
        Week(draft, pump, ends_at=ends_at, **about).run()
        events = draft.read_all(limit=1_000_000).events
        copy_events(events, store)
        for policy in policies:
            # The week's consequences are in it; the policies go on from here.
            Checkpoint.objects.update_or_create(
                name=policy.name, defaults={"position": store.head()}
            )
    while follow_projections(store, projections):
        pass
    return len(events)


def found_platform(store: EventStore, env: Env, now: datetime) -> None:
    """Register the platform of the demo and open its accounts."""
    by = Meta(actor="loop:bootstrap")
    parties.register_tenant(
        store,
        slug=PLATFORM.slug,
        title=PLATFORM.title,
        currency=env.currency,
        by=by,
        now=now,
    )
    money.open_tenant_accounts(
        store,
        tenant_id=PLATFORM.tenant_id,
        title=PLATFORM.title,
        currency=env.currency,
        is_platform=True,
        by=by,
        now=now,
    )


def copy_events(events: Sequence[Recorded], store: EventStore) -> None:
    """Append a draft's events in their order, a run of one stream and request at a time.

    A decision says up to which position its engine had read. Positions are each store's own, so it
    is told by the place that the same event has in `store`.
    """
    versions: dict[str, int] = {}
    through = {one.event.through for one in events if isinstance(one.event, DECISIONS)}
    places: dict[int, Position] = {START: START}
    for (stream, _), run in groupby(events, key=lambda one: (one.stream, one.meta_data)):
        together = list(run)
        expected = versions.get(stream, 0)
        appended = store.append(
            stream,
            [NewEvent(one.id, _placed(one.event, places)) for one in together],
            expected=expected,
            by=together[0].meta,
        )
        versions[stream] = expected + len(together)
        places[together[-1].position] = appended.position
        if any(one.position in through for one in together[:-1]):
            there = store.read_stream(stream, after_version=expected)
            for one, copied in zip(together, there, strict=False):
                places[one.position] = copied.position


def _placed(event: Event, places: Mapping[int, Position]) -> Event:
    if isinstance(event, DECISIONS):
        return replace(event, through=places[event.through])
    return event
