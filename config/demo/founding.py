"""The first morning: organisations join, open accounts, register hosts, get their tokens.

Every step names itself, so doing it all again on the next start changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid5

from config.demo.cast import CAST, DEMO, PLATFORM, Machine, Organisation, Player, Unit
from config.demo.elsewhere import comparisons
from config.demo.governing import govern
from config.demo.secrets import Secrets
from ledger.commands import money, parties
from ledger.commands import tokens as token_commands
from ledger.domain import account_ids, tokens
from ledger.domain.ids import EntryId, TokenId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.port import EventStore, Meta
from ledger.models import Person
from listings import commands as listings
from listings.domain.events import Gpu
from listings.domain.markets import Market, market_of_region
from marketplace.commands.spending import set_comparison
from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus, parse_models

TOKEN_LIFE = timedelta(days=90)


def found(
    store: EventStore,
    *,
    home: Path,
    market: str,
    currency: str,
    now: datetime,
    markets: Sequence[Market] = (),
) -> None:
    """Set the whole cast up, each machine on the market of its region.

    markets: those of the installation; none: `market` alone.
    """
    secrets = Secrets(home)
    markets = markets or (Market(market),)
    used: list[str] = []
    for organisation in CAST:
        by = _by(organisation, "found")
        if organisation is not PLATFORM:
            _join(store, organisation, currency, by, now)
        for unit in organisation.units:
            _open(store, organisation, unit, currency, now)
        for player in organisation.people:
            _admit(store, organisation, player, now)
            if player.unit:
                _give_token(store, organisation, player, secrets, now)
        for machine in organisation.machines:
            there = market_of_region(markets, machine.region)
            used.append(there)
            _register(store, organisation, machine, there, secrets, now)
    for name in dict.fromkeys(used):
        govern(store, market=name, now=now)
    for terms in comparisons(currency, now):
        set_comparison(store, terms=terms, by=_by(PLATFORM, f"compare:{terms.gpu_model}"))


def _by(organisation: Organisation, step: str) -> Meta:
    return Meta(
        actor="loop:demo",
        tenant_id=organisation.tenant_id,
        command_id=uuid5(DEMO, f"{organisation.slug}:{step}"),
    )


def _join(
    store: EventStore, organisation: Organisation, currency: str, by: Meta, now: datetime
) -> None:
    parties.register_tenant(
        store,
        slug=organisation.slug,
        title=organisation.title,
        currency=currency,
        by=by,
        now=now,
    )
    money.open_tenant_accounts(
        store,
        tenant_id=organisation.tenant_id,
        title=organisation.title,
        currency=currency,
        is_platform=False,
        by=by,
        now=now,
    )


def _open(
    store: EventStore, organisation: Organisation, unit: Unit, currency: str, now: datetime
) -> None:
    by = _by(organisation, f"unit:{unit.slug}")
    parties.add_subscriber(
        store,
        tenant_id=organisation.tenant_id,
        subscriber_id=unit.subscriber_id,
        title=unit.title,
        cost_centre=unit.cost_centre,
        by=by,
        now=now,
    )
    account_id = account_ids.funds_account(unit.subscriber_id, currency)
    money.open_account(
        store,
        account_id=account_id,
        tenant_id=organisation.tenant_id,
        subscriber_id=unit.subscriber_id,
        kind="chargeback" if unit.prepaid_units is None else "prepaid",
        title=f"{organisation.title}: {unit.title}",
        currency=currency,
        overdraft_nanos=None if unit.prepaid_units is None else 0,
        by=by,
        now=now,
    )
    if unit.prepaid_units is not None:
        money.add_funds(
            store,
            account_id=account_id,
            entry_id=EntryId(uuid5(DEMO, f"top-up:{unit.slug}")),
            money=Money(unit.prepaid_units * NANOS_PER_UNIT, currency),
            reference="Opening balance of the demo",
            platform_id=PLATFORM.tenant_id,
            by=by.step("top-up"),
            now=now,
        )


def _admit(store: EventStore, organisation: Organisation, player: Player, now: datetime) -> None:
    # People sign in by the demo's buttons: none of them has a password that could be guessed.
    if not Person.objects.filter(pk=player.user_id).exists():
        Person.objects.create_user(
            player.email, None, id=player.user_id, title=player.title, is_demo=True
        )
    units = {unit.slug: unit.subscriber_id for unit in organisation.units}
    parties.admit_member(
        store,
        tenant_id=organisation.tenant_id,
        user_id=player.user_id,
        roles=player.roles,
        subscriber_id=units.get(player.unit or ""),
        by=_by(organisation, f"admit:{player.email}"),
        now=now,
    )


def _give_token(
    store: EventStore, organisation: Organisation, player: Player, secrets: Secrets, now: datetime
) -> None:
    roles = set(player.roles)
    scopes = [scope for scope, may in tokens.ROLES_OF_SCOPE.items() if may & roles]
    token_commands.issue_token(
        store,
        token_id=TokenId(uuid5(DEMO, f"token:{player.email}")),
        tenant_id=organisation.tenant_id,
        user_id=player.user_id,
        written=tokens.read(secrets.get(player.email, "user")),
        title="Demo token",
        scopes=scopes,
        expires_at=now + TOKEN_LIFE,
        by=_by(organisation, f"token:{player.email}"),
        now=now,
    )


def _register(
    store: EventStore,
    organisation: Organisation,
    machine: Machine,
    market: str,
    secrets: Secrets,
    now: datetime,
) -> None:
    by = _by(organisation, f"host:{machine.slug}")
    listings.register_host(
        store,
        host_id=machine.host_id,
        tenant_id=organisation.tenant_id,
        title=machine.slug,
        market=market,
        region=machine.region,
        by=by,
        now=now,
    )
    token_commands.issue_host_token(
        store,
        token_id=TokenId(uuid5(DEMO, f"token:{machine.slug}")),
        tenant_id=organisation.tenant_id,
        host_id=machine.host_id,
        written=tokens.read(secrets.get(machine.slug, "host")),
        title=f"Agent of {machine.slug}",
        expires_at=now + TOKEN_LIFE,
        by=by.step("token"),
        now=now,
    )
    listings.report_inventory(
        store,
        host_id=machine.host_id,
        gpus=gpus_of(machine),
        by=by.step("inventory"),
        now=now,
    )


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    """Return the simulated GPUs that the machine's agent will report."""
    simulated = SimulatedGpus(
        parse_models(machine.models), clock=SystemClock(), holders=dict, seed=machine.slug
    )
    return tuple(
        Gpu(
            uuid=gpu.uuid,
            model=gpu.model,
            memory_mib=gpu.memory_mib,
            compute_capability=gpu.compute_capability,
            driver=gpu.driver,
            nvlink_group=gpu.nvlink_group,
            mig_enabled=gpu.mig_enabled,
            mig_profiles=tuple(gpu.mig_profiles),
        )
        for gpu in simulated.inventory()
    )
