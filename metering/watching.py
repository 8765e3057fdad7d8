"""Who watches whether hosts are heard, and tells the market which of them it cannot count on.

It reads when the server last heard each agent, and what the agent said of its GPUs, and has the
host's stream say what follows: from then on nothing of a silent host, and no unfit GPU, is leased.
A host that its owner drains or releases has its leases taken back. A host or GPU that is well again
proves it for a while first. A host that is silent for much longer ends its leases, and a fault of a
GPU those that hold it, or a part of it. What the watch
remembers is in memory only: one that begins anew has everything proved anew, and counts no silence
from before it began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import structlog

from ledger.domain.ids import HostId
from ledger.domain.uptime import ALWAYS_UP, Uptime
from ledger.eventstore.port import EventStore, Meta
from ledger.turns import each_alone
from listings.commands.health import come_back, fall_silent, note_gpu, quarantine_gpu, release_gpu
from listings.domain.events import GpuNote
from listings.queries import listed_cards
from listings.queries.watched import HostHealth, hosts_watched
from marketplace.commands.losses import end_for_hardware, end_for_silence
from marketplace.queries.on_hosts import leases_running_on, leases_to_resume_off
from metering.domain.health import (
    ENDS_LEASES,
    HEARD_MIN,
    GpuFault,
    HealthSaid,
    faults,
    late_after,
    notes,
    passed,
    proof_of,
    silent_after,
)
from metering.falling_short import Saying, end_what_falls_short
from metering.maintaining import maintain
from metering.models import AgentContact, HealthEvent
from metering.queries.faults import is_part, said_by
from metering.taking import take_back

PAUSE_MAX = timedelta(seconds=30)
"""A pass that comes later than this after the one before: nobody knows what went by in between."""
GONE_AFTER = timedelta(minutes=30)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEWS_OVERLAP = timedelta(minutes=1)
"""Events that are written later than others may bear an earlier time."""
WATCHER = Meta(actor="loop:host-health")

log = structlog.get_logger()


@dataclass(slots=True)
class Heard:
    """What is known of one host since the watch began.

    well_since: since when it is heard without a pause. faults: of the agent's present run.
    fit_since: since when a GPU that is withheld is without fault. reported_at: of the inventory
    looked at last; absent: what that lacked of what is offered. saying: its agent of itself.
    wrong_since: since when the watch knows of a fault. told_of_maintenance: its leases may
    be told of windows. passed: GPUs whose last diagnostic did;
    told: of diagnostics and clocks of each GPU the last, as far as it is not on record.
    """

    run: UUID | None = None
    well_since: datetime | None = None
    faults: dict[str, GpuFault] = field(default_factory=dict)
    fit_since: dict[str, datetime] = field(default_factory=dict)
    reported_at: datetime | None = None
    absent: frozenset[str] = frozenset()
    saying: Saying | None = None
    wrong_since: dict[str, datetime] = field(default_factory=dict)
    told_of_maintenance: bool = True
    passed: set[str] = field(default_factory=set)
    told: dict[tuple[str, str], HealthSaid] = field(default_factory=dict)


class Watch:
    """Looks at all hosts in each pass. Not for threads: one loop calls it again and again."""

    def __init__(
        self,
        *,
        poll_seconds: int,
        gone_after: timedelta = GONE_AFTER,
        uptime: Callable[[datetime], Uptime] = lambda now: ALWAYS_UP,
        is_reachable: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin to watch.

        Args:
            gone_after: the silence after which leases end.
            is_reachable: tells if agents could be heard; asked only while none is.
        """
        self._poll_seconds = poll_seconds
        self._gone_after = max(gone_after, late_after(poll_seconds))
        # No lease ends for a silence that the market does not see.
        self._silent_after = min(silent_after(poll_seconds), self._gone_after)
        self._uptime = uptime
        self._is_reachable = is_reachable
        self._began_at = self._reachable_since = EPOCH
        self._passed_at: datetime | None = None
        self._read_to: datetime | None = None
        self._hosts: dict[UUID, Heard] = defaultdict(Heard)

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Look at every host once; return how many facts that made."""
        if self._passed_at is None or not timedelta() <= now - self._passed_at <= PAUSE_MAX:
            self._began_at = self._reachable_since = now
            self._read_to = None
            self._hosts.clear()
        self._passed_at = now
        known = {row.host_id: row for row in hosts_watched()}
        contacts = {each.host_id: each for each in AgentContact.objects.all()}
        self._take_news(contacts, known, now)
        heard_at = max((each.last_seen_at for each in contacts.values()), default=now)
        if heard_at < now - late_after(self._poll_seconds) and not self._is_reachable():
            # Nobody at all is heard: then it is the market that is not there, not its hosts.
            self._reachable_since = now
        uptime = self._uptime(now)
        # One without a contact never had an agent, so nothing of it can be started either. One
        # host that cannot be told must not hold up the others.
        return each_alone(
            [host for host in known.values() if host.host_id in contacts],
            lambda host: self._look_at(store, host, contacts[host.host_id], uptime, now),
            event="host.not-told",
            told=lambda host: {"host": str(host.host_id)},
        )

    def silence_of(self, last_seen_at: datetime, uptime: Uptime, now: datetime) -> timedelta:
        """Return for how long an agent could have been heard and was not.

        Neither while nobody watched, nor while the market was away, could it.
        """
        return uptime.between(max(last_seen_at, self._began_at, self._reachable_since), now)

    def _look_at(
        self,
        store: EventStore,
        host: HostHealth,
        contact: AgentContact,
        uptime: Uptime,
        now: datetime,
    ) -> int:
        heard, host_id = self._hosts[host.host_id], HostId(host.host_id)
        silence = self.silence_of(contact.last_seen_at, uptime, now)
        is_well = contact.last_seen_at >= now - late_after(self._poll_seconds)
        heard.well_since = (heard.well_since or now) if is_well else None
        told = 0
        if host.silent_since is None and silence > self._silent_after:
            fall_silent(store, host_id=host_id, heard_at=contact.last_seen_at, by=WATCHER, now=now)
            log.warning("host.silent", host=str(host_id), heard_at=contact.last_seen_at)
            told += 1
        elif host.silent_since is not None and self._is_back(heard, now):
            come_back(store, host_id=host_id, by=WATCHER, now=now)
            log.info("host.returned", host=str(host_id))
            told += 1
        if silence > self._gone_after:
            told += self._end_leases(store, host_id, contact.last_seen_at, silence, now)
        told += take_back(store, host, by=WATCHER, now=now)
        heard.told_of_maintenance, done = maintain(
            store, host, heard.told_of_maintenance, by=WATCHER, now=now
        )
        told += done
        heard.saying, ended = end_what_falls_short(store, host, heard.saying, by=WATCHER, now=now)
        told += ended
        return told + self._look_at_gpus(store, host, heard, now)

    def _end_leases(
        self,
        store: EventStore,
        host_id: HostId,
        heard_at: datetime,
        silence: timedelta,
        now: datetime,
    ) -> int:
        """End what runs on a host, and what is to begin there within as long as it is silent.

        A host that was silent for so long will hardly be back sooner: what begins before that had
        better look for another place now. What begins later still waits.
        """
        coming = leases_to_resume_off(host_id, until=now + silence)
        ended = [*leases_running_on(host_id), *coming]
        for lease_id in ended:
            end_for_silence(
                store, lease_id=lease_id, host_id=host_id, heard_at=heard_at, by=WATCHER, now=now
            )
            log.warning("lease.host-gone", lease=str(lease_id), host=str(host_id))
        return len(ended)

    def _is_back(self, heard: Heard, now: datetime) -> bool:
        return heard.well_since is not None and now - heard.well_since >= HEARD_MIN

    def _look_at_gpus(
        self, store: EventStore, host: HostHealth, heard: Heard, now: datetime
    ) -> int:
        if heard.reported_at != host.reported_at:
            heard.reported_at = host.reported_at
            heard.absent = listed_cards(host.host_id) - host.gpu_uuids
        wrong = {uuid: GpuFault("absent", "the host does not find it") for uuid in heard.absent}
        wrong |= heard.faults
        host_id, told = HostId(host.host_id), 0
        for uuid, fault in wrong.items():
            heard.fit_since.pop(uuid, None)
            if uuid in host.unfit:
                continue
            quarantine_gpu(
                store,
                host_id=host_id,
                gpu_uuid=uuid,
                reason=fault.reason,
                detail=fault.detail,
                by=WATCHER,
                now=now,
            )
            log.warning("gpu.unfit", host=str(host_id), gpu=uuid, reason=fault.reason)
            told += 1
        told += self._end_on_faults(store, host, heard, wrong, now)
        told += self._note(store, host_id, heard, now)
        for uuid, reason in host.unfit.items():
            proof = proof_of(reason, host.relapses.get(uuid, 0))
            unproved = reason == "diagnostic-failed" and uuid not in heard.passed
            if uuid in wrong or heard.well_since is None or unproved:
                heard.fit_since.pop(uuid, None)
            elif now - heard.fit_since.setdefault(uuid, now) >= proof:
                release_gpu(store, host_id=host_id, gpu_uuid=uuid, by=WATCHER, now=now)
                del heard.fit_since[uuid]  # told once, though its row is read a moment later
                log.info("gpu.fit", host=str(host_id), gpu=uuid)
                told += 1
        return told

    def _note(self, store: EventStore, host_id: HostId, heard: Heard, now: datetime) -> int:
        """Put on record what is told of GPUs besides faults, as far as it is news by now."""
        for uuid, said in [(uuid, said) for (uuid, _), said in heard.told.items()]:
            note_gpu(
                store,
                host_id=host_id,
                gpu_uuid=uuid,
                note=cast(GpuNote, said.kind),
                detail=said.detail,
                by=WATCHER,
                now=now,
            )
        noted, heard.told = len(heard.told), {}
        return noted

    def _end_on_faults(
        self,
        store: EventStore,
        host: HostHealth,
        heard: Heard,
        wrong: Mapping[str, GpuFault],
        now: datetime,
    ) -> int:
        """End the leases of GPUs whose faults have lasted, with all their parts."""
        since = {uuid: heard.wrong_since.get(uuid, now) for uuid in wrong}
        heard.wrong_since, told = since, 0
        lasting = {
            uuid: fault
            for uuid, fault in wrong.items()
            if fault.reason in ENDS_LEASES and now - since[uuid] >= ENDS_LEASES[fault.reason][1]
        }
        for lease_id, gpus in (leases_running_on(host.host_id) if lasting else {}).items():
            found = (card for card in lasting if any(is_part(host, each, card) for each in gpus))
            if (card := next(found, None)) is None:
                continue
            fault = lasting[card]
            end_for_hardware(
                store,
                lease_id=lease_id,
                host_id=HostId(host.host_id),
                reason=ENDS_LEASES[fault.reason][0],
                gpu_uuid=card,
                detail=fault.detail,
                failed_at=fault.since or since[card],
                by=WATCHER,
                now=now,
            )
            log.warning("lease.gpu-failed", lease=str(lease_id), gpu=card, reason=fault.reason)
            told += 1
        return told

    # --- what agents said ------------------------------------------------------------------------

    def _take_news(
        self, contacts: dict[UUID, AgentContact], known: dict[UUID, HostHealth], now: datetime
    ) -> None:
        """Bring the faults of each host up to date, where its agent said something or is new."""
        due = [
            host_id
            for host_id, contact in contacts.items()
            if host_id in known and self._hosts[host_id].run != contact.boot_id
        ]
        if self._read_to is None:
            due = [host_id for host_id in contacts if host_id in known]
        else:
            news = HealthEvent.objects.filter(received_at__gte=self._read_to - NEWS_OVERLAP)
            spoke = set(news.values_list("host_id", flat=True).distinct())
            due = [*due, *(spoke & known.keys() & contacts.keys() - set(due))]
        self._read_to = now
        for host_id in due:
            contact, heard = contacts[host_id], self._hosts[host_id]
            heard.run = contact.boot_id
            said = list(said_by(contact))
            heard.faults, heard.passed = faults(known[host_id].gpu_uuids, said), passed(said)
            heard.told = notes(said)
