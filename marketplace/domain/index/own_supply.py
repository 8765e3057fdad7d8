"""Who has offers in a book, and which of their own bids wait: what own use is found by.

A tenant without offers costs one look at a dict here. For one that has some, its bids are put in
columns of their own the first time its supply grows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from ledger.domain.ids import HostId, OfferId, TenantId
from marketplace.domain.index.bid_queue import Queue
from marketplace.domain.index.free_levels import ALWAYS
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid

FEW = 32
"""Hosts that are simply gone through; of more, the columns say which have room."""


class Owners(dict[TenantId, dict[HostId, set[OfferId]]]):
    """The offers of each tenant that has any, by host. Changed by the book alone.

    number: gives a bid's shape its number.
    """

    def __init__(self, catalogue: Catalogue, number: Callable[[OpenBid], int]) -> None:
        super().__init__()
        self._catalogue = catalogue
        self._number = number
        self._bids: dict[TenantId, dict[OpenBid, None]] = defaultdict(dict)
        self._queues: dict[TenantId, Queue] = {}

    def bids_of(self, tenant_id: TenantId) -> Iterable[OpenBid]:
        """Return the bids of a tenant that wait."""
        return self._bids.get(tenant_id, ())

    # --- changing --------------------------------------------------------------------------

    def offered(self, listed: Listed) -> None:
        """Take note of an offer."""
        hosts = self.setdefault(listed.terms.tenant_id, {})
        hosts.setdefault(listed.terms.host_id, set()).add(listed.offer_id)

    def gone(self, listed: Listed) -> None:
        """Take note that an offer is gone."""
        tenant_id, host_id = listed.terms.tenant_id, listed.terms.host_id
        hosts = self[tenant_id]
        hosts[host_id].discard(listed.offer_id)
        if not hosts[host_id]:
            del hosts[host_id]
        if not hosts:
            del self[tenant_id]
            self._queues.pop(tenant_id, None)

    def wait(self, bid: OpenBid) -> None:
        """Take note of a bid that waits, whichever lane it waits for."""
        tenant_id = bid.terms.tenant_id
        self._bids[tenant_id][bid] = None
        queue = self._queues.get(tenant_id) if self._queues else None
        if queue is not None:
            queue.add(bid)

    def leave_each(self, of: Iterable[OpenBid]) -> None:
        """Take note that some bids wait no longer; they need not have waited."""
        tenant_id: TenantId | None = None
        bids = dict[OpenBid, None]()
        for bid in of:
            if bid.terms.tenant_id is not tenant_id:  # an id is hashed by a call
                tenant_id = bid.terms.tenant_id
                bids = self._bids.get(tenant_id, {})
            # Taken out in one look: what is there is None.
            if bids.pop(bid, bid) is not None:
                continue
            queue = self._queues.get(tenant_id) if self._queues else None
            if queue is not None:
                queue.remove_each((bid,))
            if not bids:
                del self._bids[tenant_id]
                self._queues.pop(tenant_id, None)

    def renumber(self) -> None:
        """Ask for the numbers of all shapes again."""
        for queue in self._queues.values():
            queue.renumber()

    # --- finding ---------------------------------------------------------------------------

    def entries(self, bid: OpenBid, *, earliest: int) -> Iterable[Entry]:
        """Return the offers of a bid's own tenant that may serve it in some size, by rank."""
        tenant_id = bid.terms.tenant_id
        hosts = self.get(tenant_id)
        if hosts is None:
            return ()
        if len(hosts) <= FEW:
            return self._catalogue.entries_on(bid.shape, hosts)
        # Any floor will do at home, so no limit narrows what is looked at: only room does.
        found = self._catalogue.candidates(
            bid.least, earliest=earliest, limit=ALWAYS, longest=bid.duration
        )
        return [entry for entry in found if entry.listed.terms.tenant_id == tenant_id]

    def waiting(
        self, hosts: Collection[HostId], calendar: Calendar, *, now: int
    ) -> Iterator[OpenBid]:
        """Yield the bids of the owners of some hosts for which those may have room, in order.

        calendar: in which the caller takes room for one bid before it asks for the next.
        """
        by_owner: dict[TenantId, list[HostId]] = defaultdict(list)
        for host_id in hosts:
            for listed in self._catalogue.on(host_id):
                if listed.terms.tenant_id in self._bids:
                    by_owner[listed.terms.tenant_id].append(host_id)
                break  # a host is one tenant's
        for tenant_id in sorted(by_owner, key=str):
            yield from self._of(tenant_id, by_owner[tenant_id], calendar, now)

    def _of(
        self, tenant_id: TenantId, hosts: Collection[HostId], calendar: Calendar, now: int
    ) -> Iterator[OpenBid]:
        queue = self._queues.get(tenant_id)
        if queue is None:
            queue = self._queues[tenant_id] = Queue(self._number)
            for bid in self._bids[tenant_id]:
                queue.add(bid)
        floors = self._catalogue.floors(hosts)
        served = queue.served(floors.of_nothing)
        yield from served.with_room(
            lambda: self._catalogue.free(hosts, calendar, served, now=now, for_nothing=True),
            lambda: calendar.changes,
            now,
        )
