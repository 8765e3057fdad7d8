"""Who follows what: the whole reactive side of the system on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path

import structlog

import bursting.policies
import bursting.projections
import ledger.policies
import ledger.projections
import listings.loops
import listings.policies
import listings.projections
import listings.queries
import marketplace.budgeting
import marketplace.folders
import marketplace.forming
import marketplace.logs
import marketplace.loops
import marketplace.money_notices
import marketplace.policies
import marketplace.projections
import marketplace.promises_kept
import marketplace.volumes
import metering.loops
import metering.parts
import metering.policies
import metering.projections
import metering.watching
from config.env import Env
from config.exports import export_loops
from config.forgetting import kept_for_days
from config.money_loops import money_loops
from config.notifying import notice_loops, telling
from config.operations.hearing import answers
from config.overflow import ADMIT_AGENT, overflow_loops, sweep_tokens
from config.processes.beating import Beats
from config.processes.kernels import kernels_here
from config.processes.loops import Loop, wake
from config.site.live import tape
from config.site.live.relay import Relay
from ledger.closing import Checking
from ledger.collecting import let_go, settle
from ledger.connect.comparing import transfers_and_stripe, transfers_are_there
from ledger.domain.reconciling import Comparing
from ledger.domain.uptime import Uptime
from ledger.eventstore.port import EventStore
from ledger.following import Policy, Projecting, Projection
from ledger.funding.comparing import journal_and_stripe
from ledger.funding.reconciling import stripe_is_reconciled
from ledger.paying import payouts_add_up
from ledger.queries.invoices_add_up import journal_and_invoices
from ledger.queries.payouts_add_up import files_and_bank, payouts_and_files
from ledger.reacting import Reacting
from ledger.rest.idempotency import forget_old_keys
from ledger.turns import each_alone
from listings.domain.markets import read_markets
from marketplace.beside import Forked
from marketplace.domain.leases.actions import LEASE_MAX
from marketplace.engine import Engine
from marketplace.keeper import Keeper
from marketplace.snapshots import snapshots_for
from marketplace.storage.folder import FolderStorage
from marketplace.storage.port import Storage
from metering.idling import watch_idle_leases
from metering.loops import BEAT_SECONDS
from metering.queries.closing import use_is_charged, use_is_rated
from metering.queries.reconciling import samples_and_windows, windows_and_charges
from metering.queries.uptime import contacts, uptime

GATHER_SECONDS = 0.01
"""Between two looks of those whom people wait for: rows, and leases for what was granted."""
CLEARING_GATHER_SECONDS = 0.016
"""The same for an engine; facts that come meanwhile are decided in one append."""
REST_SECONDS_MAX = 0.1
BULK_GATHER_SECONDS = 0.25
"""Between two pages of rows that nobody waits for: prices, trades, the tape, money, meters."""
WATCHED_FOR = timedelta(hours=1)
"""How far back an outage of the market matters to whether a host is silent."""

CLOSING_CHECKS: tuple[Checking, ...] = (
    use_is_rated,
    use_is_charged,
    payouts_add_up,
    stripe_is_reconciled,
    transfers_are_there,
)
"""What is looked at before a month is closed, besides the books themselves."""


def legs_compared(env: Env) -> tuple[Comparing, ...]:
    """Return what `reconcile` compares besides the books themselves, in the order of the money."""
    kept = timedelta(days=env.samples_kept_days)
    of_use = partial(samples_and_windows, kept=kept), windows_and_charges
    of_owners = payouts_and_files, files_and_bank, transfers_and_stripe
    return (*of_use, journal_and_invoices, *of_owners, journal_and_stripe)


log = structlog.get_logger()


def build_store(env: Env) -> EventStore:
    """Return the store that EVENTSTORE_URL names.

    Imports late: a server on PostgreSQL never loads gRPC, and one on memory no database.
    """
    if env.eventstore_url == "postgres":
        from ledger.eventstore.postgres import PostgresStore

        return PostgresStore()
    if env.eventstore_url == "memory":
        from ledger.eventstore.memory import MemoryStore

        return MemoryStore()
    if env.eventstore_url.startswith("esdb"):
        from ledger.eventstore.esdb import EsdbStore

        return EsdbStore(env.eventstore_url)
    raise SystemExit(
        f"EVENTSTORE_URL must be postgres, memory or esdb://…, not {env.eventstore_url!r}"
    )


def build_storage(env: Env, home: Path) -> Storage:
    """Return the storage for files that OFFPEAK_STORAGE names. Loads boto3 only where it is S3."""
    if env.storage == "s3":
        from marketplace.storage.s3 import S3Storage

        return S3Storage(
            env.storage_bucket,
            region=env.storage_region,
            endpoint_url=env.storage_endpoint_url or None,
        )
    return FolderStorage(home / "blobs")


def projections() -> tuple[Projection, ...]:
    """Return every read model: what writes rows."""
    return (
        *ledger.projections.PROJECTIONS,
        *listings.projections.PROJECTIONS,
        *marketplace.projections.PROJECTIONS,
        *metering.projections.PROJECTIONS,
        *bursting.projections.PROJECTIONS,
        *tape.PROJECTIONS,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def policies(env: Env, *, clock: Callable[[], datetime] | None = _now) -> tuple[Policy, ...]:
    """Return everything that is asked for because something happened.

    clock: by which a grant may be too late to be taken up; None: none ever is, as where a past
    week is played.
    """
    return (
        *ledger.policies.POLICIES,
        *listings.policies.POLICIES,
        *marketplace.policies.policies(fee_ppm=env.fee_ppm, clock=clock),
        *marketplace.money_notices.POLICIES,
        *marketplace.budgeting.POLICIES,
        *marketplace.promises_kept.POLICIES,
        *metering.policies.POLICIES,
        *bursting.policies.POLICIES,
        *telling(clock),
        ADMIT_AGENT,
    )


def loops(env: Env) -> tuple[Loop, ...]:
    """Return everything that is done again and again, by events or by the clock."""
    start_grace = timedelta(seconds=env.start_grace_seconds)
    always = (
        _rows("projections", [each for each in projections() if not each.is_bulk], GATHER_SECONDS),
        _rows("bulk-rows", [each for each in projections() if each.is_bulk], BULK_GATHER_SECONDS),
        _reacting(env),
        *(_clearing(env, market.name) for market in read_markets(env.market, env.markets)),
        *(_keeping(env, market.name) for market in read_markets(env.market, env.markets)),
        Loop(
            "lease-clock",
            0.5,
            lambda store, now: marketplace.loops.advance_leases(
                store,
                now=now,
                start_grace=start_grace,
                uptime=lambda: _uptime(now, start_grace),
                heard=contacts,
            ),
            gather_seconds=0.5,
        ),
        Loop("extensions", 5.0, lambda store, now: marketplace.loops.extend_leases(store, now=now)),
        *money_loops(env),
        *_moves(env),
        Loop("forms", 15.0, _choose_forms),
        Loop(
            "live",
            5.0,
            Relay(shared=bool(env.redis_url), rows=[each.name for each in projections()]).run_once,
            on_events=True,
            gather_seconds=REST_SECONDS_MAX,
        ),
        _watching(env),
        Loop("offer-expiry", 5.0, lambda store, now: listings.loops.expire_offers(store, now=now)),
        Loop(
            "stray-holds",
            60.0,
            lambda store, now: marketplace.loops.sweep_stray_holds(store, now=now),
        ),
        *notice_loops(env),
        *export_loops(env),
        Loop("old-tokens", 60.0, lambda store, now: sweep_tokens(store, now=now)),
        Loop("old-keys", 3_600.0, lambda store, now: forget_old_keys(now=now)),
        *kept_for_days(env),
        Loop(
            "charges",
            60.0,
            lambda store, now: metering.loops.charge_what_is_left(store, now=now),
        ),
        _rating(env),
        Loop("idle-leases", 15.0, lambda store, now: watch_idle_leases(store, now=now)),
        _beating(),
    )
    return always if env.burst_cloud == "none" else (*always, *overflow_loops(env))


def _rows(name: str, followed: Sequence[Projection], gather_seconds: float) -> Loop:
    """Return a loop that writes the rows of some read models."""
    known: dict[EventStore, Projecting] = {}

    def write(store: EventStore, now: datetime) -> int:
        if store not in known:
            known[store] = Projecting(followed)
        return known[store].run_once(store)

    return Loop(
        name,
        5.0,
        write,
        on_events=True,
        gather_seconds=gather_seconds,
        rest_seconds_max=REST_SECONDS_MAX,
    )


def _reacting(env: Env) -> Loop:
    """Return the loop that asks for what is to follow from what happened."""
    every_policy = policies(env)
    known: dict[EventStore, Reacting] = {}

    def react(store: EventStore, now: datetime) -> int:
        if store not in known:
            known[store] = Reacting(every_policy)
        return known[store].run_once(store)

    return Loop(
        "policies",
        2.0,
        react,
        on_events=True,
        gather_seconds=GATHER_SECONDS,
        rest_seconds_max=REST_SECONDS_MAX,
        rests=3.0,  # nobody waits for them as for a row: at work a quarter of the time
    )


def _rating(env: Env) -> Loop:
    """Return the loop that closes usage windows and corrects them."""
    meter_grace = timedelta(seconds=env.meter_grace_seconds)
    return Loop(
        "usage",
        2.0,
        lambda store, now: metering.loops.close_usage_windows(
            store,
            now=now,
            window_seconds=env.usage_window_seconds,
            grace=meter_grace,
            uptime=_uptime(now, meter_grace),
        ),
    )


def _beating() -> Loop:
    """Return the loop that notes that the clock and the rows are at work."""
    beats = Beats()
    return Loop("beat", BEAT_SECONDS, lambda store, now: beats.run_once(store, now=now))


def _uptime(now: datetime, grace: timedelta) -> Uptime:
    """Return when the market was up, as far back as anybody may still be given time from."""
    return uptime(since=now - grace - LEASE_MAX)


def _choose_forms(store: EventStore, now: datetime) -> int:
    """Put idle offers by demand into the form that is worth most, where there are any."""
    return each_alone(
        listings.queries.markets_by_demand(),
        lambda market: marketplace.forming.choose_forms(store, market=market, now=now),
        event="forms.not-chosen",
        told=lambda market: {"market": market},
    )


def _moves(env: Env) -> tuple[Loop, ...]:
    """Return the loop that moves bids between markets, where there are several."""
    if not read_markets(env.market, env.markets)[1:]:
        return ()
    mover = marketplace.loops.Mover()
    return (Loop("bid-moves", 10.0, lambda store, now: mover.run_once(store, now=now)),)


def _watching(env: Env) -> Loop:
    """Return the loop that watches whether hosts are heard, and how their GPUs are."""
    watch = cache(
        lambda: metering.watching.Watch(
            poll_seconds=env.agent_poll_seconds,
            gone_after=timedelta(seconds=env.host_gone_seconds),
            is_reachable=lambda: answers(env),
            uptime=lambda now: _uptime(now, WATCHED_FOR),
        )
    )
    return Loop("host-health", 5.0, lambda store, now: watch().run_once(store, now=now))


def _clearing(env: Env, market: str) -> Loop:
    """Return the loop of one market's engine: whoever holds it is that market's only writer."""
    engines: dict[EventStore, Engine] = {}

    def clear(store: EventStore, now: datetime) -> int:
        kernels_here().go_over()
        if store not in engines:
            kept, seconds = snapshots_for(store), env.round_seconds
            engines[store] = Engine(
                store, market, round_seconds=seconds, snapshots=kept, beside=_forked
            )
            made = engines[store].run_once(now=now)
            settle()  # the book just folded: a collector that walks it would hold up the market
            began, read = engines[store].folded
            log.info("engine.folded", market=market, snapshot=began, read_since=read)
            return made
        return engines[store].run_once(now=now)

    return Loop(
        clearing_of(env, market),
        1.0,
        clear,
        on_events=True,
        gather_seconds=CLEARING_GATHER_SECONDS,
        prepare=lambda: kernels_here().start(),
        kernels=lambda: kernels_here().words,
        rounds=lambda: "; ".join(each.round_words for each in engines.values()),
    )


def _forked(work: Callable[[], bytes]) -> Forked:
    """Work beside an engine, which looks again once that is over."""
    return Forked(work, wake=wake)


def _keeping(env: Env, market: str) -> Loop:
    """Return the loop that keeps snapshots of one market's book for whoever starts from them."""
    keepers: dict[EventStore, Keeper] = {}

    def keep(store: EventStore, now: datetime) -> int:
        if store not in keepers:
            keepers[store] = Keeper(store, market, snapshots=snapshots_for(store))
        kept = keepers[store].run_once(now=now)
        if kept:
            let_go()
        return kept

    return Loop(keeping_of(env, market), 10.0, keep)


def clearing_of(env: Env, market: str) -> str:
    """Return the name of the loop that clears a market."""
    return "clearing" if market == env.market else f"clearing-{market}"


def keeping_of(env: Env, market: str) -> str:
    """Return the name of the loop that keeps a market's snapshots."""
    return "snapshots" if market == env.market else f"snapshots-{market}"


def loop_groups(env: Env) -> dict[str, tuple[str, ...]]:
    """Return how `manage.py up` spreads the loops over processes: every engine has its own."""
    groups = dict(LOOP_GROUPS)
    for market in read_markets(env.market, env.markets)[1:]:
        groups["overflow"] = (*LOOP_GROUPS["overflow"], "bid-moves")
        groups[f"engine-{market.name}"] = (clearing_of(env, market.name),)
        groups["snapshots"] = (*groups["snapshots"], keeping_of(env, market.name))
    return groups


LOOP_GROUPS: Mapping[str, tuple[str, ...]] = {
    "engine": ("clearing",),
    "read-side": ("projections", "policies", "live"),
    "clockwork": (
        "beat",
        "bulk-rows",
        "lease-clock",
        "host-health",
        "extensions",
        "money-waits",
        "account-watch",
        "offer-expiry",
        "usage",
        "idle-leases",
        "charges",
        "stray-holds",
        "budgets",
        "old-tokens",
        "old-keys",
        "carried-accounts",
        "compared-meters",
        "disputes",
        "closed-months",
        "receivables",
        "deliveries",
        "settlements",
        "payment-calls",
        "payment-reconciliation",
        "payment-notices",
        "owner-transfers",
        "automatic-top-ups",
        "invoice-mail",
        "invoices",
        "papers",
        "old-blobs",
        "volumes",
        "logs",
        "old-samples",
        "old-heartbeats",
    ),
    "overflow": ("bursting", "homecoming", "reaper", "forms"),
    "snapshots": ("snapshots", "exports", "old-exports", "export-delivery"),
}
"""How the loops of one market are spread over processes; `loop_groups` adds those of others."""

GIVE_WAY: Mapping[str, int] = {"read-side": 3, "clockwork": 3, "overflow": 5, "snapshots": 10}
"""Niceness of the processes that may be late where cores are few: those who bid do not wait for
them, and what they ask of the database is not held back."""
