"""Who takes part in the demo, and what they own."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid5

from ledger.domain.events import Role
from ledger.domain.ids import HostId, SubscriberId, TenantId, UserId
from ledger.domain.parties import PLATFORM_SLUG, tenant_id_of
from listings.domain.events import Division

DEMO = UUID("0ff9ea40-0000-4000-8000-000000000000")
"""What every id of the demo derives from."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A business unit: what it may spend, and how it pays."""

    slug: str
    title: str
    cost_centre: str
    prepaid_units: int | None = None
    """Money in its wallet; None: an internal cost centre without a budget."""

    @property
    def subscriber_id(self) -> SubscriberId:
        """Return its id."""
        return SubscriberId(uuid5(DEMO, f"unit:{self.slug}"))


@dataclass(frozen=True, slots=True)
class Player:
    """A person one can sign in as."""

    email: str
    title: str
    roles: tuple[Role, ...]
    unit: str | None = None
    about: str = ""

    @property
    def user_id(self) -> UserId:
        """Return the id of the person."""
        return UserId(uuid5(DEMO, f"person:{self.email}"))


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU host. idle_from, idle_to: hours of the owner's clock in which its GPUs are listed.

    floors: of as many offers, each of as many of its GPUs: cheap ones for all, dear ones for when
    those are taken. shares: how each of them is divided; None: they are leased whole.
    grace_seconds None: as it is where an owner says nothing.
    """

    slug: str
    models: str
    region: str
    floors: tuple[str, ...]
    idle_from: int
    idle_to: int
    notice_seconds: int = 120
    reclaim_fee_ppm: int = 100_000
    shares: Division | None = None
    grace_seconds: int | None = None

    @property
    def host_id(self) -> HostId:
        """Return the id of the host."""
        return HostId(uuid5(DEMO, f"host:{self.slug}"))


@dataclass(frozen=True, slots=True)
class Organisation:
    """A tenant with its people, units and machines."""

    slug: str
    title: str
    zone: str
    people: tuple[Player, ...]
    units: tuple[Unit, ...] = ()
    machines: tuple[Machine, ...] = ()

    @property
    def tenant_id(self) -> TenantId:
        """Return the id of the tenant."""
        return tenant_id_of(self.slug)


PLATFORM = Organisation(
    slug=PLATFORM_SLUG,
    title="Northwind GPU Exchange",
    zone="Europe/Berlin",
    people=(
        Player("olivia@demo.example", "Olivia Operator", ("operator",), about="governs the market"),
        Player("joan@demo.example", "Joan Finance", ("finance", "auditor"), about="sees all money"),
    ),
)
AURORA = Organisation(
    slug="aurora",
    title="Aurora Weather Research",
    zone="Europe/Berlin",
    people=(
        Player(
            "ada@demo.example",
            "Ada Owner",
            ("owner", "operator", "consumer", "finance"),
            unit="aurora-models",
            about="owns 24 GPUs, lists her nights",
        ),
    ),
    units=(Unit("aurora-models", "Forecast models", "AU-100"),),
    machines=(
        Machine("aurora-h100-1", "H100:8", "eu-central", ("1.20", "1.45"), 18, 8, grace_seconds=60),
        Machine("aurora-h100-2", "H100:8", "eu-central", ("1.70", "2.10"), 18, 8),
        Machine(
            "aurora-a100-1",
            "A100:8",
            "eu-central",
            ("0.60", "0.75", "0.95", "1.25"),
            0,
            24,
            notice_seconds=60,
        ),
    ),
)
BOREALIS = Organisation(
    slug="borealis",
    title="Borealis Animation",
    zone="America/New_York",
    people=(
        Player(
            "bruno@demo.example",
            "Bruno Owner",
            ("owner", "operator", "consumer"),
            unit="borealis-render",
            about="a render farm, idle by day",
        ),
    ),
    units=(Unit("borealis-render", "Rendering", "BO-7", prepaid_units=5_000),),
    machines=(
        Machine(
            "borealis-l40s-1",
            "L40S:8",
            "us-east",
            ("0.35", "0.45", "0.60", "0.80"),
            0,
            24,
            grace_seconds=90,
        ),
        Machine("borealis-l40s-2", "L40S:4", "us-east", ("0.50", "0.70"), 20, 14),
        Machine("borealis-l4-1", "L4:1", "us-east", ("0.12",), 0, 24, shares=Division("mps", 4)),
        Machine(
            "borealis-a100-mig",
            "A100@mig:1",
            "us-east",
            ("0.20",),
            0,
            24,
            shares=Division("mig", profiles=("3g.40gb", "2g.20gb", "1g.10gb")),
        ),
    ),
)
CIRRUS = Organisation(
    slug="cirrus",
    title="Cirrus Language Lab",
    zone="Europe/London",
    people=(
        Player(
            "grace@demo.example",
            "Grace Consumer",
            ("consumer", "operator", "finance"),
            unit="cirrus-llm",
            about="trains and serves language models",
        ),
    ),
    units=(
        Unit("cirrus-llm", "Language models", "CI-2100", prepaid_units=20_000),
        Unit("cirrus-vision", "Vision", "CI-2200", prepaid_units=8_000),
    ),
)
WORKBENCH = Machine(
    "delta-a10-1", "A10:2", "eu-central", ("0.25",), 0, 24, notice_seconds=60, grace_seconds=15
)
"""Where work runs for real (see `workbench`): of a model, and at a price, that nobody made up asks
for, and of an owner whose own people need none, so that it is free for whoever looks."""
DELTA = Organisation(
    slug="delta", title="Delta Robotics", zone="Europe/Berlin", people=(), machines=(WORKBENCH,)
)
CAST = (PLATFORM, AURORA, BOREALIS, CIRRUS, DELTA)
EVERY_UNIT = tuple((org, unit) for org in CAST for unit in org.units)
EVERY_MACHINE = tuple((org, machine) for org in CAST for machine in org.machines)
PLAYERS = tuple((org, player) for org in CAST for player in org.people)
