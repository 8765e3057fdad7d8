"""A market to write tests about: facts put straight into a store, and an engine that reads them.

Nothing here decides anything. `Market` names hosts, offers, bids and leases by short words, so
that a test reads like what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

from ledger.commands.money import open_account, place_hold
from ledger.domain.event import Event
from ledger.domain.ids import (
    AccountId,
    BidId,
    HoldId,
    HostId,
    LeaseId,
    MaintenanceId,
    OfferId,
    SubscriberId,
    TenantId,
)
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import (
    Appended,
    EventStore,
    Expect,
    Meta,
    NewEvent,
    Position,
    Recorded,
    load,
)
from ledger.eventstore.together import record_together
from listings.domain.changes import TermsChange, changed
from listings.domain.divisions import divide
from listings.domain.events import (
    Division,
    Gpu,
    GpuQuarantined,
    GpuReleased,
    HostAbilitiesReported,
    HostFellSilent,
    HostReturned,
    HostTakingChanged,
    Isolation,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferWithdrawn,
    Taking,
    WeeklyRule,
)
from listings.domain.maintenance_events import MaintenanceAnnounced, MaintenanceCancelled
from listings.domain.offers import Offer
from marketplace.commands.grants import leasing
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import (
    BidAmended,
    BidCancelled,
    BidFilled,
    BidPlaced,
    ExtensionRequested,
    GpuRequest,
    GrantRefusal,
    GrantRefused,
    LeaseClosed,
    LeaseGranted,
    Patience,
    Placement,
    ReclaimRequested,
    ServiceClass,
    Workload,
)
from marketplace.engine import Engine
from marketplace.keeper import Keeper
from marketplace.snapshots.port import Snapshots
from tests.conftest import NOON, SOMEBODY

NAMES = UUID(int=0x0FF9EA4)
OWNER = TenantId(uuid5(NAMES, "owner"))
MARKET = "main"
MEMORY_MIB = {"H100-80GB": 81_559, "A100-80GB": 81_920, "T4": 15_360, "L4": 23_034}
CAPABILITY = {"H100-80GB": "9.0", "A100-80GB": "8.0", "T4": "7.5", "L4": "8.9"}


def named(word: str) -> UUID:
    """Return the id that a test means by a word."""
    return uuid5(NAMES, word)


def rate(amount: float | str) -> Rate:
    """Return a price per GPU-hour."""
    return Rate(round(float(amount) * NANOS_PER_UNIT))


def gpus_of(host: str, count: int, model: str, *, nvlink: int | None = None) -> tuple[Gpu, ...]:
    """Return GPUs called `host:0`, `host:1`, …; nvlink: how many are joined in one group."""
    return tuple(
        Gpu(
            uuid=f"{host}:{index}",
            model=model,
            memory_mib=MEMORY_MIB.get(model, 40_960),
            compute_capability=CAPABILITY.get(model, "8.0"),
            driver="570.86",
            nvlink_group=None if nvlink is None else f"{host}/{index // nvlink}",
        )
        for index in range(count)
    )


class OpenStore(MemoryStore):
    """A store that lets a test do something just before an append to the market's stream."""

    before: Callable[[], object] | None = None

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        before, self.before = self.before, None
        if before is not None and stream.startswith("market-"):
            before()
        return super().append(stream, events, expected=expected, by=by)


class Market:
    """Facts of one market in a store. now: when the next fact happens."""

    def __init__(
        self, store: EventStore | None = None, *, now: datetime = NOON, name: str = MARKET
    ) -> None:
        self.name = name
        self.store: EventStore = MemoryStore() if store is None else store
        self.now = now
        self.engine = self.new_engine()
        self.keeper: Keeper | None = None

    def new_engine(self, *, round_seconds: int = 60) -> Engine:
        """Return another engine for the same market."""
        return Engine(self.store, self.name, round_seconds=round_seconds)

    def keep(self, snapshots: Snapshots, *, facts: int) -> None:
        """Keep a snapshot after so many facts from now on; a new engine starts from them."""
        self.engine = Engine(self.store, self.name, snapshots=snapshots)
        self.keeper = Keeper(self.store, self.name, snapshots=snapshots, snapshot_facts=facts)

    def run(self) -> int:
        """Let the engine do one pass, and then the keeper, if there is one."""
        made = self.engine.run_once(now=self.now)
        if self.keeper is not None:
            self.keeper.run_once(now=self.now)
        return made

    def wait(self, **length: float) -> None:
        """Let time pass."""
        self.now += timedelta(**length)

    def put(self, stream: str, event: Event) -> Position:
        """Record a fact."""
        fresh = [NewEvent(uuid4(), event)]
        return self.store.append(stream, fresh, expected=Expect.ANY, by=SOMEBODY).position

    def offer(
        self,
        word: str,
        *,
        host: str | None = None,
        gpus: int = 1,
        only: Sequence[int] | None = None,
        model: str = "H100-80GB",
        nvlink: int | None = None,
        at: float | str = 1,
        windows: Sequence[tuple[datetime, datetime]] = (),
        weekly: WeeklyRule | None = None,
        lease_min: timedelta = timedelta(minutes=1),
        kinds: tuple[str, ...] = (),
        region: str = "eu",
        labels: tuple[tuple[str, str], ...] = (),
        isolation: Isolation = "whole",
        reserved_for: str | None = None,
        owner: TenantId = OWNER,
        currency: str = "USD",
        notice: timedelta = timedelta(minutes=5),
        grace: timedelta = timedelta(seconds=15),
        cleaning: timedelta = timedelta(),
        division: Division | None = None,
    ) -> OfferId:
        """Publish GPUs of a host (all, or those `only`), by default for the coming week."""
        offer_id = OfferId(named(f"offer {word}"))
        host = host or word
        listed = gpus_of(host, gpus, model, nvlink=nvlink)
        if only is not None:
            listed = tuple(listed[index] for index in only)
        if division is not None:
            by_mig = division.kind == "mig"
            cards = [replace(gpu, mig_enabled=by_mig) for gpu in listed]
            listed = tuple(share for gpu in cards for share in divide(gpu, division))
            isolation = division.kind
        if not windows and weekly is None:
            windows = [(self.now, self.now + timedelta(days=7))]
        self.put(
            f"offer-{offer_id}",
            OfferPublished(
                offer_id=offer_id,
                tenant_id=owner,
                host_id=HostId(named(f"host {host}")),
                market=self.name,
                region=region,
                labels=labels,
                gpus=listed,
                windows=tuple(Window(*window) for window in windows),
                weekly=weekly,
                floor=Rate(rate(at).nanos_per_gpu_hour, currency),
                lease_min_seconds=lease_min // timedelta(seconds=1),
                notice_seconds=notice // timedelta(seconds=1),
                grace_seconds=grace // timedelta(seconds=1),
                cleaning_seconds=cleaning // timedelta(seconds=1),
                reclaim_fee_ppm=100_000,
                workload_kinds=kinds,
                isolation=isolation,
                division=division,
                source="local",
                reserved_for=None if reserved_for is None else BidId(named(f"bid {reserved_for}")),
                at=self.now,
            ),
        )
        return offer_id

    def change_offer(self, word: str, what: str, at: float | str = 0) -> None:
        """Reprice, pause, resume or withdraw an offer."""
        offer_id = OfferId(named(f"offer {word}"))
        event: Event
        if what == "reprice":
            event = OfferRepriced(offer_id=offer_id, floor=rate(at), at=self.now)
        else:
            kinds = {"pause": OfferPaused, "resume": OfferResumed, "withdraw": OfferWithdrawn}
            event = kinds[what](offer_id=offer_id, at=self.now)
        self.put(f"offer-{offer_id}", event)

    def health(self, host: str, what: str, gpu: int | str = 0) -> None:
        """Say that a host is silent, returned, paused or resumed, or a GPU of it unfit or fit."""
        host_id = HostId(named(f"host {host}"))
        uuid = f"{host}:{gpu}"
        event: Event
        match what:
            case "silent":
                event = HostFellSilent(host_id=host_id, heard_at=self.now, at=self.now)
            case "paused" | "resumed":
                word: Taking = "paused" if what == "paused" else "all"
                event = HostTakingChanged(
                    host_id=host_id, at_host="all", on_market=word, at=self.now
                )
            case "returned":
                event = HostReturned(host_id=host_id, at=self.now)
            case "unfit":
                event = GpuQuarantined(
                    host_id=host_id, gpu_uuid=uuid, reason="gpu-lost", detail="", at=self.now
                )
            case _:
                event = GpuReleased(host_id=host_id, gpu_uuid=uuid, at=self.now)
        self.put(f"host-{host_id}", event)

    def maintain(
        self, host: str, since: datetime, until: datetime | None, *gpus: int, word: str = "m"
    ) -> None:
        """Announce maintenance of a host, or of some of its GPUs; until None: cancel it."""
        host_id = HostId(named(f"host {host}"))
        maintenance_id = MaintenanceId(named(f"maintenance {host} {word}"))
        event: Event = MaintenanceCancelled(
            host_id=host_id, maintenance_id=maintenance_id, at=self.now
        )
        if until is not None:
            event = MaintenanceAnnounced(
                host_id=host_id,
                maintenance_id=maintenance_id,
                window=Window(since, until),
                gpu_uuids=tuple(f"{host}:{gpu}" for gpu in gpus),
                reason="new fans",
                at=self.now,
            )
        self.put(f"host-{host_id}", event)

    def agent(self, host: str, sandbox: str, *abilities: str) -> None:
        """Let the agent of a host say how far it keeps work apart, and what it can do."""
        host_id = HostId(named(f"host {host}"))
        event = HostAbilitiesReported(
            host_id=host_id, sandbox=sandbox, enforces=(), abilities=abilities, at=self.now
        )
        self.put(f"host-{host_id}", event)

    def change_terms(self, word: str, **said: Any) -> None:
        """Change the terms of an offer; said: as `TermsChange` names them."""
        offer_id = OfferId(named(f"offer {word}"))
        offer = load(self.store, Offer, offer_id)
        assert offer is not None
        event = changed(offer.terms, TermsChange(**said), now=self.now)
        self.put(f"offer-{offer_id}", event)

    def bid(
        self,
        word: str,
        *,
        gpus: int = 1,
        hours: float = 1,
        at: float | str = 2,
        start: datetime | None = None,
        deadline: datetime | None = None,
        request: GpuRequest | None = None,
        gang: bool = False,
        patience: Patience = "immediate",
        service_class: ServiceClass = "on-demand",
        kind: str = "other",
        currency: str = "USD",
        tenant: TenantId | None = None,
        work: Workload | None = None,
        **more: Any,
    ) -> BidId:
        """Place a bid that needs no money behind it; by default it has a day to start.

        more: further terms, as BidPlaced names them.
        """
        bid_id = BidId(named(f"bid {word}"))
        start = start or self.now
        length = timedelta(hours=hours)
        placement: Placement = "any-hosts" if gang else "same-host"
        tenant = tenant or TenantId(named(f"tenant {word}"))
        self.put(
            f"bid-{bid_id}",
            BidPlaced(
                bid_id=bid_id,
                tenant_id=tenant,
                subscriber_id=SubscriberId(tenant),
                user_id=None,
                account_id=AccountId(tenant),
                hold_id=HoldId(bid_id),
                market=self.name,
                request=request or GpuRequest(),
                gpus=gpus,
                placement=placement,
                duration_seconds=length // timedelta(seconds=1),
                earliest_start=start,
                deadline=deadline or start + length + timedelta(days=1),
                limit=Rate(rate(at).nanos_per_gpu_hour, currency),
                service_class=service_class,
                patience=patience,
                workload=work or Workload(kind=kind),
                cost_centre="",
                burst_allowed=False,
                at=self.now,
                **more,
            ),
        )
        return bid_id

    def amend(self, word: str, *, at: float | str, deadline: datetime, **sized: Any) -> None:
        """Change a bid. sized: gpus, gpus_min and request, as BidAmended names them."""
        bid_id = BidId(named(f"bid {word}"))
        self.put(
            f"bid-{bid_id}",
            BidAmended(bid_id=bid_id, limit=rate(at), deadline=deadline, at=self.now, **sized),
        )

    def cancel(self, word: str) -> None:
        """Withdraw a bid."""
        bid_id = BidId(named(f"bid {word}"))
        self.put(f"bid-{bid_id}", BidCancelled(bid_id=bid_id, at=self.now))

    def close(self, word: str, *, reason: int = 100, of_host: HostId | None = None) -> None:
        """Close the lease of a bid."""
        lease_id = self.lease_id(word)
        self.put(
            f"lease-{lease_id}",
            LeaseClosed(
                lease_id=lease_id,
                market=self.name,
                reason=reason,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=self.now,
                of_host=of_host,
            ),
        )

    def reclaim(self, word: str, *, owner: TenantId = OWNER) -> None:
        """Let an owner take the capacity of a bid's lease back, in five minutes."""
        lease_id = self.lease_id(word)
        self.put(
            f"lease-{lease_id}",
            ReclaimRequested(
                lease_id=lease_id,
                owner_id=owner,
                stop_at=self.now + timedelta(minutes=5),
                at=self.now,
            ),
        )

    def extend(self, word: str, until: datetime) -> None:
        """Ask for a bid's lease to go on."""
        lease_id = self.lease_id(word)
        self.put(
            f"lease-{lease_id}",
            ExtensionRequested(lease_id=lease_id, market=self.name, ends_at=until, at=self.now),
        )

    def decisions(self) -> list[Recorded]:
        """Return everything the engine has decided."""
        return list(self.store.read_stream(f"market-{self.name}"))

    def grants(self) -> dict[BidId, LeaseGranted]:
        """Return each bid's grant."""
        return {
            recorded.event.bid_id: recorded.event
            for recorded in self.decisions()
            if isinstance(recorded.event, LeaseGranted)
        }

    def take_up(self) -> None:
        """Let every grant become a lease, as policies do where nothing has changed since."""
        filled = {each.event.bid_id for each in self.events() if isinstance(each.event, BidFilled)}
        for bid_id, granted in self.grants().items():
            if bid_id not in filled:
                done = BidFilled(bid_id=bid_id, lease_id=granted.lease_id, at=self.now)
                self.put(f"bid-{bid_id}", done)
                if next(self.store.read_stream(f"lease-{granted.lease_id}"), None) is not None:
                    continue  # a test has told of it already
                bid = load(self.store, Bid, bid_id)
                assert bid is not None
                record_together(self.store, [leasing(granted, bid, 50_000, SOMEBODY)])

    def refuse(self, word: str, reason: GrantRefusal = "bid-changed") -> None:
        """Give the grant of a bid back."""
        granted = self.grant(word)
        assert granted is not None, f"{word} has no grant"
        refused = GrantRefused(
            bid_id=granted.bid_id,
            lease_id=granted.lease_id,
            market=self.name,
            reason=reason,
            at=self.now,
        )
        self.put(f"bid-{granted.bid_id}", refused)

    def grant(self, word: str) -> LeaseGranted | None:
        """Return the grant of one bid, or None."""
        return self.grants().get(BidId(named(f"bid {word}")))

    def lease_id(self, word: str) -> LeaseId:
        """Return the lease of a bid that has one."""
        granted = self.grant(word)
        assert granted is not None, f"{word} has no lease"
        return granted.lease_id

    def events(self) -> Iterator[Recorded]:
        """Yield everything that happened."""
        after = Position(0)
        while True:
            page = self.store.read_all(after=after)
            yield from page.events
            after = page.next_position
            if page.caught_up:
                return


def somebody(command_id: UUID | None = None) -> Meta:
    """Return who asks in a test of commands."""
    return Meta(actor="user:test", command_id=command_id)


def cover(market: Market, word: str, units: int = 1_000) -> None:
    """Put money behind a bid that was placed without any."""
    bid = load(market.store, Bid, BidId(named(f"bid {word}")))
    assert bid is not None
    terms, by, now = bid.terms, somebody(), market.now
    open_account(
        market.store,
        account_id=terms.account_id,
        tenant_id=terms.tenant_id,
        subscriber_id=terms.subscriber_id,
        kind="prepaid",
        title=word,
        currency="USD",
        overdraft_nanos=units * NANOS_PER_UNIT,
        by=by,
        now=now,
    )
    place_hold(
        market.store,
        account_id=terms.account_id,
        hold_id=terms.hold_id,
        money=bid.hold,
        purpose=f"bid:{terms.bid_id}",
        by=by,
        now=now,
    )
