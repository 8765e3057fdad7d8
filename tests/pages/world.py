"""A small market made by the real commands: an owner with a host, a consumer with money."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.test import Client

from config.wiring import policies, projections
from ledger import commands
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import AccountId, EntryId, HostId, OfferId, SubscriberId, TenantId, UserId
from ledger.domain.money import Money, Rate
from ledger.domain.parties import tenant_id_of
from ledger.domain.span import Window
from ledger.eventstore import default_store
from ledger.eventstore.port import EventStore, Meta
from ledger.following import follow_projections
from ledger.models import Person
from ledger.reacting import follow_policies
from listings.commands import publish_offer, register_host, report_inventory
from listings.domain.events import Gpu, ReclaimStep
from listings.domain.terms import OfferTerms
from marketplace.engine import Engine

BY = Meta(actor="user:test")
PLATFORM, OWNER, CONSUMER = "platform", "aurora", "cirrus"
PASSES_MAX = 50


@dataclass
class World:
    """The market, and how to act in it. `settle` lets everything happen that must."""

    store: EventStore = field(default_factory=default_store)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    host_id: HostId = field(default_factory=lambda: HostId(uuid4()))
    offer_id: OfferId = field(default_factory=lambda: OfferId(uuid4()))
    unit_id: SubscriberId = field(default_factory=lambda: SubscriberId(uuid4()))

    def __post_init__(self) -> None:
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        """Return another engine for the same market."""
        return Engine(self.store, settings.ENV.market)

    def tenant(self, slug: str) -> TenantId:
        """Return the id of one of the three organisations."""
        return tenant_id_of(slug)

    @property
    def account_id(self) -> AccountId:
        """Return the consumer's account."""
        return funds_account(self.unit_id, "USD")

    def found(self) -> None:
        """Register the organisations, their people, the host, and the consumer's money."""
        for slug in (PLATFORM, OWNER, CONSUMER):
            commands.register_tenant(
                self.store, slug=slug, title=slug.title(), currency="USD", by=BY, now=self.now
            )
            commands.open_tenant_accounts(
                self.store,
                tenant_id=self.tenant(slug),
                title=slug.title(),
                currency="USD",
                is_platform=slug == PLATFORM,
                by=BY,
                now=self.now,
            )
        commands.add_subscriber(
            self.store,
            tenant_id=self.tenant(CONSUMER),
            subscriber_id=self.unit_id,
            title="Language models",
            cost_centre="CI-2100",
            by=BY,
            now=self.now,
        )
        commands.open_account(
            self.store,
            account_id=self.account_id,
            tenant_id=self.tenant(CONSUMER),
            subscriber_id=self.unit_id,
            kind="prepaid",
            title="Language models",
            currency="USD",
            overdraft_nanos=0,
            by=BY,
            now=self.now,
        )
        commands.add_funds(
            self.store,
            account_id=self.account_id,
            entry_id=EntryId(uuid4()),
            money=Money(100_000_000_000),
            reference="transfer 1",
            platform_id=self.tenant(PLATFORM),
            by=BY,
            now=self.now,
        )
        self._host()
        self.settle()

    def _host(self) -> None:
        register_host(
            self.store,
            host_id=self.host_id,
            tenant_id=self.tenant(OWNER),
            title="aurora-1",
            market=settings.ENV.market,
            region="eu-west",
            by=BY,
            now=self.now,
        )
        gpus = [
            Gpu(
                uuid=f"GPU-{number}",
                model="NVIDIA H100 80GB HBM3",
                memory_mib=81_559,
                compute_capability="9.0",
                driver="550.54",
            )
            for number in range(4)
        ]
        report_inventory(self.store, host_id=self.host_id, gpus=gpus, by=BY, now=self.now)

    def list_gpus(self, *numbers: int, floor: str = "2.00", hours: int = 10) -> None:
        """Offer some of the host's GPUs from an hour ago on."""
        whole, _, cents = floor.partition(".")
        publish_offer(
            self.store,
            offer_id=self.offer_id,
            host_id=self.host_id,
            terms=OfferTerms(
                gpu_uuids=tuple(f"GPU-{number}" for number in numbers),
                windows=(Window(self.now - timedelta(hours=1), self.now + timedelta(hours=hours)),),
                floor=Rate((int(whole) * 100 + int(cents)) * 10_000_000),
                notice_seconds=600,
                reclaim_fee_ppm=100_000,
                reclaim_steps=(ReclaimStep(3_600, 20_000),),
            ),
            by=BY,
            now=self.now,
        )
        self.settle()

    def member(self, slug: str, *roles: str) -> Client:
        """Return a browser in which a new person with these roles is signed in."""
        email = f"{'-'.join(roles)}@{slug}.example"
        person = Person.objects.filter(email=email).first()
        if person is None:
            person = Person.objects.create_user(email, title=f"{slug.title()} {roles[0]}")
            commands.admit_member(
                self.store,
                tenant_id=self.tenant(slug),
                user_id=UserId(person.id),
                roles=roles,
                subscriber_id=self.unit_id if slug == CONSUMER else None,
                by=BY,
                now=self.now,
            )
            self.settle()
        client = Client()
        client.force_login(person)
        return client

    def settle(self) -> None:
        """Run the engine, policies and projections until nothing is left to do."""
        for _ in range(PASSES_MAX):
            done = self.engine.run_once(now=datetime.now(UTC))
            done += follow_policies(self.store, policies(settings.ENV))
            done += follow_projections(self.store, projections())
            if not done:
                return
        raise AssertionError("the market does not come to rest")


def id_in(location: str) -> UUID:
    """Return the id of the thing a form went on to."""
    return UUID(location.split("?")[0].rsplit("/", 1)[1])
