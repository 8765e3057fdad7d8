"""Who holds which GPU when: the one place where capacity is taken and given back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ledger.domain.ids import HostId, LeaseId, TenantId
from listings.domain.divisions import are_rivals, read_share
from marketplace.domain.facts.instants import Millis, from_below, whole_second


class Taken(NamedTuple):
    """A half-open span of one GPU. lease_id None: its owner took it back and keeps it."""

    starts: Millis
    ends: Millis
    lease_id: LeaseId | None


ALL_TIME = (Taken(Millis(0), from_below(datetime(2200, 1, 1, tzinfo=UTC)), None),)
"""What is taken of a GPU that is withheld: there is no time at which it is to be had."""


class Calendar:
    """The taken spans of every GPU, by UUID: in order, never overlapping.

    withheld: GPUs that nobody can have now, whatever is free of them: their host is silent, or they
    are unfit. `of` gives them as taken for all time; who holds what of them stays as it is.

    A fork sees what its parent has and keeps its own changes to itself: that is how a round is
    tried out. The parent must not change while a fork is in use.
    """

    def __init__(self, parent: Calendar | None = None) -> None:
        self._parent = parent
        self._taken: dict[str, tuple[Taken, ...]] = {}
        self._promised: list[Callable[[], Iterable[tuple[Iterable[str], Taken]]]] = []
        """What was given away since anybody last looked."""
        self.parted: dict[str, set[str]] = {} if parent is None else parent.parted
        """The shares of each card of which something was ever taken; a fork adds to the same."""
        self.withheld: set[str] = set() if parent is None else parent.withheld
        """A fork has the same."""
        self.closed: dict[str, tuple[Taken, ...]] = {} if parent is None else parent.closed
        """When nobody can have which GPUs: they are in maintenance then. A fork has the same."""
        self._closed_on: dict[HostId, tuple[str, ...]] = {}
        self._united: dict[str, tuple[tuple[Taken, ...], tuple[Taken, ...], tuple[Taken, ...]]] = {}
        self._withheld_on: dict[HostId, tuple[str, ...]] = {}
        self.one_tenant: dict[HostId, set[str]] = {} if parent is None else parent.one_tenant
        """Hosts that cannot keep tenants apart, each with its GPUs; a fork has the same."""
        self.tenants: dict[LeaseId, TenantId] = {} if parent is None else parent.tenants
        """Whose leases are, as far as it matters to such hosts; a fork adds to the same, since an
        id is one lease's for ever. One that is not here is that of somebody else."""
        self.changes = 0
        """Counts what was taken and given back here."""

    def fork(self) -> Calendar:
        """Return a calendar that starts as this one."""
        return Calendar(self)

    def changed_since(self, before: Calendar) -> set[str] | None:
        """Return the GPUs of which anything was taken or given back since it was forked.

        before: the calendar that it, or what it was forked from, is a fork of. None: it may be
        any, since cards stand in it whole and in shares.
        """
        changed = set[str]()
        at: Calendar | None = self
        while at is not None and at is not before:
            if at._promised:
                at._keep_promises()
            changed.update(at._taken)
            at = at._parent
        return None if self.parted else changed

    def of(self, uuid: str) -> tuple[Taken, ...]:
        """Return the taken spans of a GPU, in order of time."""
        if self.withheld and uuid in self.withheld:
            return ALL_TIME
        held = self.held(uuid)
        closed = self.closed.get(uuid) if self.closed else None
        if closed is None:
            return held
        known = self._united.get(uuid)
        # The very same tuple for the same spans: whoever asks keeps what follows from it.
        if known is None or known[0] is not held or known[1] is not closed:
            known = self._united[uuid] = (held, closed, united(held, closed))
        return known[2]

    def of_each(self, uuids: Collection[str]) -> list[tuple[Taken, ...]]:
        """Return the same of some GPUs."""
        if (
            self.withheld
            or self.closed
            or self._promised
            or (self._parent is not None and self._taken)
        ):
            return [self.of(uuid) for uuid in uuids]
        if self._parent is not None:
            return self._parent.of_each(uuids)
        taken = self._taken
        return [taken.get(uuid, ()) for uuid in uuids]

    def held(self, uuid: str) -> tuple[Taken, ...]:
        """Return the spans of a GPU that somebody holds, also of one that is withheld."""
        if self._promised:
            self._keep_promises()
        spans = self._taken.get(uuid)
        if spans is None:
            spans = () if self._parent is None else self._parent.held(uuid)
        return spans

    def spans(self) -> dict[str, tuple[Taken, ...]]:
        """Return what is held of each GPU now, to be compared with what is held of it later."""
        assert self._parent is None and not self._promised
        return dict(self._taken)

    def withhold(self, host_id: HostId, uuids: Collection[str]) -> None:
        """Let nobody have these GPUs of a host, and all others of it again."""
        assert self._parent is None, "forks are of one moment"
        self.withheld.difference_update(self._withheld_on.pop(host_id, ()))
        if uuids:
            self._withheld_on[host_id] = tuple(uuids)
            self.withheld.update(uuids)
        self.changes += 1

    def close(self, host_id: HostId, spans: Mapping[str, tuple[Taken, ...]]) -> None:
        """Let nobody have these GPUs of a host in these spans, and no others of it be closed."""
        assert self._parent is None, "forks are of one moment"
        for uuid in self._closed_on.pop(host_id, ()):
            self.closed.pop(uuid, None)
        if spans:
            self._closed_on[host_id] = tuple(spans)
            self.closed.update(spans)
        self._united.clear()
        self.changes += 1

    def promise(self, given: Callable[[], Iterable[tuple[Iterable[str], Taken]]]) -> None:
        """Give spans of some GPUs to somebody; which, `given` is asked when somebody looks."""
        self._promised.append(given)
        self.changes += 1

    def _keep_promises(self) -> None:
        promised, self._promised = self._promised, []
        for given in promised:
            for uuids, span in given():
                for uuid in uuids:
                    self._put(uuid, span)

    def gpus(self) -> Iterator[str]:
        """Yield every GPU of which something is taken, in order."""
        assert self._parent is None, "ask the calendar that the fork came from"
        yield from sorted(uuid for uuid, spans in self._taken.items() if spans)

    def is_free(self, uuid: str, starts: int, ends: int, *, cleaning: int = 0) -> bool:
        """Tell if nobody holds the GPU at any instant of [starts, ends).

        cleaning: how long before the next lease it has to be over; what an owner keeps needs none.
        """
        spans = self.of(uuid)
        if self.parted or read_share(uuid) is not None:
            spans = self.with_rivals(uuid, spans)
        clean = ends + cleaning
        return not any(
            span.starts < (ends if span.lease_id is None else clean) and starts < span.ends
            for span in spans
        )

    def note_tenant(self, lease_id: LeaseId, tenant_id: TenantId) -> None:
        """Take note whose a lease is, where there are hosts for which that matters."""
        if self.one_tenant:
            self.tenants[lease_id] = tenant_id

    def meets_others(self, host_id: HostId, tenant_id: object, starts: int, ends: int) -> bool:
        """Tell if work of a tenant in [starts, ends) would meet that of another, not kept apart."""
        return host_id in self.one_tenant and any(
            span.starts < ends and starts < span.ends for span in self._others(host_id, tenant_id)
        )

    def without_others(
        self, spans: Sequence[tuple[Millis, Millis]], host_id: HostId, tenant_id: TenantId
    ) -> Sequence[tuple[Millis, Millis]]:
        """Return what is left of a GPU's free spans while no other tenant is on its host."""
        others = self._others(host_id, tenant_id) if host_id in self.one_tenant else ()
        if not others:
            return spans
        left = gaps(spans, others)
        return tuple([(at, ends) for starts, ends in left if (at := whole_second(starts)) < ends])

    def _others(self, host_id: HostId, tenant_id: object) -> list[Taken]:
        tenants = self.tenants
        found = {
            span
            for uuid in self.one_tenant[host_id]
            for span in self.held(uuid)
            if span.lease_id is not None and tenants.get(span.lease_id) != tenant_id
        }
        return sorted(found, key=lambda span: (span.starts, span.ends))

    def rivals(self, uuid: str) -> list[str]:
        """Return what is known of a GPU's card in another form: whole, or divided otherwise."""
        share = read_share(uuid)
        if share is None and not self.parted:
            return []
        card = uuid if share is None else share.card_uuid
        return [
            other for other in (card, *sorted(self.parted.get(card, ()))) if are_rivals(uuid, other)
        ]

    def with_rivals(self, uuid: str, spans: tuple[Taken, ...]) -> tuple[Taken, ...]:
        """Add to a GPU's spans those of its rivals: of leases that were granted before.

        The result is in order of time, and its spans may overlap.
        """
        others = [span for other in self.rivals(uuid) for span in self.of(other)]
        if not others:
            return spans
        return tuple(sorted((*spans, *others), key=lambda span: (span.starts, span.ends)))

    def take(self, uuid: str, span: Taken) -> None:
        """Give a span of a GPU to somebody; it must be free."""
        self.changes += 1
        self._put(uuid, span)

    def take_each(self, uuids: Collection[str], span: Taken) -> None:
        """Give a span of some GPUs to somebody, as `take` does of one."""
        if self._promised:
            self._keep_promises()
        starts, ends, _ = span
        of_gpu, is_first = self._taken, self._parent is None and starts < ends
        before: tuple[Taken, ...] | None = None
        after: tuple[Taken, ...] = ()
        for uuid in uuids:
            spans = of_gpu.get(uuid)
            if "/" in uuid:
                self._put(uuid, span)
            elif after and spans is before:
                of_gpu[uuid] = after  # the very same for GPUs that are always leased together
            # Mostly it is the first that is taken of a card, or comes after all others.
            elif (spans and spans[-1][1] <= starts < ends) or (not spans and is_first):
                before, after = spans, (*(spans or ()), span)
                of_gpu[uuid] = after
            else:
                self._put(uuid, span)
        self.changes += len(uuids)

    def _put(self, uuid: str, span: Taken) -> None:
        assert span.starts < span.ends
        spans = self.held(uuid)
        if spans and spans[-1].ends > span.starts:
            place = bisect_left(spans, span[:1])  # no tuple is shorter, so the start decides
            before, after = spans[:place], spans[place:]
            assert not before or before[-1].ends <= span.starts, f"{uuid} is leased twice"
            assert not after or span.ends <= after[0].starts, f"{uuid} is leased twice"
            self._taken[uuid] = (*before, span, *after)
        else:
            self._taken[uuid] = (*spans, span)
        share = read_share(uuid)
        if share is not None:
            self.parted.setdefault(share.card_uuid, set()).add(uuid)

    def carve(self, uuid: str, starts: Millis, ends: Millis, lease_ids: Container[LeaseId]) -> None:
        """Give back what some leases hold of a GPU within [starts, ends), and that only."""
        for lease_id in {span.lease_id for span in self.held(uuid)}:
            if lease_id is None or lease_id not in lease_ids:
                continue
            for span in self.drop(uuid, lease_id):
                if span.starts < starts:
                    self.take(uuid, span._replace(ends=min(span.ends, starts)))
                if ends < span.ends:
                    self.take(uuid, span._replace(starts=max(span.starts, ends)))

    def drop(self, uuid: str, lease_id: LeaseId | None) -> Sequence[Taken]:
        """Give back all spans that somebody holds of a GPU, and return them."""
        spans = self.held(uuid)
        if not spans:
            return ()
        dropped = [span for span in spans if span.lease_id == lease_id]
        if dropped:
            self._taken[uuid] = tuple(span for span in spans if span.lease_id != lease_id)
            self.changes += 1
        return dropped

    def drop_kept(self, uuids: Iterable[str]) -> None:
        """Give back what owners keep of some GPUs, and of their cards in other forms."""
        for uuid in uuids:
            if self.parted or "/" in uuid:
                for other in self.rivals(uuid):
                    self.drop(other, None)
            if uuid in self._taken:
                self.drop(uuid, None)

    def forget_before(self, millis: int) -> None:
        """Drop what is over, to bound memory."""
        assert not self._promised, "only forks promise"
        for uuid, spans in list(self._taken.items()):
            if spans and spans[0].ends <= millis:
                kept = tuple(span for span in spans if span.ends > millis)
                if kept:
                    self._taken[uuid] = kept
                else:
                    del self._taken[uuid]
        if self.tenants:
            held = {span.lease_id for spans in self._taken.values() for span in spans}
            for lease_id in self.tenants.keys() - held:
                del self.tenants[lease_id]
        for card, shares in list(self.parted.items()):
            shares.intersection_update(self._taken)
            if not shares:
                del self.parted[card]


def united(held: Sequence[Taken], closed: Sequence[Taken]) -> tuple[Taken, ...]:
    """Return spans that are held, and of those that are closed what nobody holds; in order."""
    free = [
        Taken(starts, ends, None)
        for starts, ends in gaps([(span.starts, span.ends) for span in closed], held)
    ]
    return tuple(sorted((*held, *free), key=lambda span: span.starts))


def gaps(
    windows: Iterable[tuple[int, int]], taken: Sequence[Taken]
) -> tuple[tuple[Millis, Millis], ...]:
    """Return what of `windows` is not taken; all in order of time, none overlapping."""
    free: list[tuple[Millis, Millis]] = []
    index = 0
    for starts, ends in windows:
        at = starts
        while index < len(taken) and taken[index].ends <= at:
            index += 1
        for opens, closes, _ in taken[index:]:
            if opens >= ends:
                break
            if at < opens:
                free.append((Millis(at), opens))
            if closes > at:
                at = closes
        if at < ends:
            free.append((Millis(at), Millis(ends)))
    return tuple(free)
