"""Which GPUs a lease was granted on a host: what an agent may send anything about.

Read from the lease's own stream, because a row may lag, and a sample must not be refused for good
only because nobody has read its lease yet. What was granted never changes, so it is remembered.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from uuid import UUID

from ledger.domain.ids import HostId, LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore
from metering.commands import terms_of_lease
from metering.domain.instants import millis_up

GRANTS_MAX = 20_000


class LeaseNotHere(Refusal):
    """That lease was not granted to this host, or not with that GPU."""


class Grant:
    """The GPUs of one lease by host, and when it starts, in milliseconds."""

    __slots__ = ("by_host", "starts_ms")

    def __init__(self, by_host: Mapping[UUID, frozenset[str]], starts_ms: int) -> None:
        self.by_host = by_host
        self.starts_ms = starts_ms

    def on(self, host_id: HostId) -> frozenset[str]:
        """Return the lease's GPUs on a host; none where it has no part in the lease."""
        return self.by_host.get(host_id, frozenset())


class Grants:
    """What leases were granted, remembered for this process."""

    def __init__(self) -> None:
        self._known: dict[LeaseId, Grant] = {}
        self._lock = threading.Lock()

    def of(self, store: EventStore, lease_id: LeaseId) -> Grant:
        """Return what a lease was granted.

        Raises: LeaseNotHere, for a lease nobody ever heard of too: the answer must not tell an
            agent which leases exist elsewhere.
        """
        found = self._known.get(lease_id)
        if found is None:
            found = self._read(store, lease_id)
            with self._lock:
                if len(self._known) >= GRANTS_MAX:
                    self._known.clear()
                self._known[lease_id] = found
        return found

    def _read(self, store: EventStore, lease_id: LeaseId) -> Grant:
        terms = terms_of_lease(store, lease_id)
        if terms is None:
            raise LeaseNotHere(lease_id=lease_id)
        by_host: dict[UUID, frozenset[str]] = {}
        for share in terms.shares:
            mine = by_host.get(share.host_id, frozenset())
            by_host[share.host_id] = mine | frozenset(share.gpu_uuids)
        return Grant(by_host, millis_up(terms.window.starts_at))
