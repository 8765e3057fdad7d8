"""Prove that no lease is cut where it need not be, or where another goes first.

The rules promise an order in which leases go, and the fewest of them. So of each lease that goes it
must hold: had it stayed, and gone in its place all those that come before it in the order, beside
those of the grant's that come after it, then the grant could not have begun when it does. Here
that is tried: with GPUs that are free then, put together as the bid asks for them, and held to the
same checks as the grant itself. A lease is at fault only where a place is found that is sound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.money import Rate
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.facts.events import Cut, LeaseGranted, Share
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.leases.reclaim_schedule import compensation
from marketplace.domain.orderbook.calendar import Taken
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.verification.card_layout import faults_of_cards
from marketplace.domain.verification.card_units import counted_in_all
from marketplace.domain.verification.cleaning_gaps import faults_of_cleaning
from marketplace.domain.verification.minimum_runtime import least_run
from marketplace.domain.verification.terms import terms_of

LOOKED_AT = 64
"""So many leases are looked at for one bid, those that go first: more need not be known."""
SECOND = timedelta(seconds=1)

Sound = Callable[[LeaseGranted], bool]
"""Tells if a grant, with what it cuts, keeps quotas and limits."""


@dataclass(frozen=True, slots=True)
class MayGo:
    """A lease that might have gone, and when it would have had to stop."""

    held: Held
    stop_at: datetime

    @property
    def lease_id(self) -> LeaseId:
        """Return its id."""
        return self.held.granted.lease_id


def may_go(
    book: Book, grants: Sequence[LeaseGranted], granted: LeaseGranted, since: datetime
) -> Iterator[MayGo]:
    """Yield the leases that run, and that nothing protects, so long as they have notice.

    grants: before this one; what they cut is not cut again. since: no lease stops before it.
    """
    gone = {cut.lease_id for each in grants for cut in each.cuts}
    for held in book.held.values():
        it = held.granted
        if it.lease_id in gone or held.reclaimed_by is not None or it.lease_id in book.resales:
            continue
        if held.claim is not None:
            continue  # it is cut for another grant, which may yet be refused
        if it.own or any(share.resold or share.source == "burst" for share in it.shares):
            continue
        notice = max(timedelta(seconds=share.notice_seconds) for share in it.shares)
        stop_at = max(granted.at + notice, it.window.starts_at + least_run(book, it), since)
        stop_at += -(stop_at - datetime.min.replace(tzinfo=stop_at.tzinfo)) % SECOND
        if it.window.starts_at <= granted.at and stop_at < moment(held.ends):
            yield MayGo(held, stop_at)


def owed(lease: MayGo, asked_at: datetime) -> int:
    """Return what a lease's owners would owe for it, in nano-units."""
    it = lease.held.granted
    return sum(
        compensation(
            [share],
            it.price,
            starts_at=it.window.starts_at,
            ends_at=moment(lease.held.ends),
            asked_at=asked_at,
            stop_at=lease.stop_at,
        ).nanos
        for share in it.shares
    )


def lost(lease: MayGo, asked_at: datetime) -> int:
    """Return what is lost if a lease goes: the rest of it, and the compensation."""
    it = lease.held.granted
    gpus = sum(len(share.gpu_uuids) for share in it.shares)
    rest = (lease.held.ends - from_below(lease.stop_at)) * gpus
    paid = compensation(
        it.shares,
        it.price,
        starts_at=it.window.starts_at,
        ends_at=moment(lease.held.ends),
        asked_at=asked_at,
        stop_at=lease.stop_at,
    )
    return it.price.charge(rest).nanos + paid.nanos


def faults_of_order(
    book: Book,
    grants: Sequence[LeaseGranted],
    granted: LeaseGranted,
    bid: OpenBid,
    ranked: Sequence[MayGo],
    sound: Sound,
    *,
    goes: Callable[[MayGo], bool] = lambda lease: True,
) -> Iterator[str]:
    """Find leases in whose stead others would have done.

    Args:
        grants: before this one. ranked: the leases that may go for it, first those that go first.
        sound: asked of the grant as it would have been. goes: tells of each that comes before
            whether it would have gone.
    """
    stopped = {cut.lease_id for cut in granted.cuts if cut.because == "interrupted"}
    room = _Room(book, grants, granted, bid)
    for place, lease in enumerate(ranked):
        if lease.lease_id not in stopped:
            continue
        others = [
            each
            for number, each in enumerate(ranked)
            if (number < place and goes(each)) or (number > place and each.lease_id in stopped)
        ]
        there = room.without(others)
        if there is not None and sound(there) and room.counts_alike():
            words = ", ".join(str(each.lease_id) for each in others) or "none"
            yield f"lease {lease.lease_id} is cut, although {words} would do"


@dataclass(slots=True)
class _Room:
    """Where a grant could be at its own time, as the round stands before it."""

    book: Book
    grants: Sequence[LeaseGranted]
    granted: LeaseGranted
    bid: OpenBid
    _fits: dict[tuple[OfferId, str], bool] = field(default_factory=dict)

    def without(self, gone: Sequence[MayGo]) -> LeaseGranted | None:
        """Return the grant as it could be with just these leases cut; None: none is found."""
        stops = {each.lease_id: each.stop_at for each in gone}
        stops |= {cut.lease_id: cut.ends_at for each in self.grants for cut in each.cuts}
        cuts = tuple(Cut(each.lease_id, each.stop_at, "interrupted") for each in gone)
        places: dict[object, list[tuple[Listed, str]]] = defaultdict(list)
        linked, gang = self.bid.terms.request.nvlink, self.bid.terms.placement == "any-hosts"
        if linked and gang:
            return None
        taken = self._taken()
        for listed in self.book.offers.values():
            if listed.paused or listed.floor > self.bid.limit:
                continue
            for gpu in listed.terms.gpus:
                if not self._is_free(gpu.uuid, stops, taken) or not self._serves(listed, gpu.uuid):
                    continue
                host = listed.terms.host_id
                where = None if gang else (host, gpu.nvlink_group) if linked else host
                if any(uuid == gpu.uuid for _, uuid in places[where]):
                    continue
                places[where].append((listed, gpu.uuid))
                if len(places[where]) == self.bid.gpus:
                    found = self._grant(places[where], cuts)
                    if self._is_sound(found):
                        return found
        return None

    def counts_alike(self) -> bool:
        """Tell if all GPUs that the bid could get count alike in every quota and limit.

        Where they do not, a place that quotas refused was tried, and which one is not told.
        """
        policies = None if self.book.quotas is None else self.book.quotas.policies
        if policies is None:
            return True
        models = {
            gpu.model
            for listed in self.book.offers.values()
            for gpu in listed.terms.gpus
            if listed.floor <= self.bid.limit and self._serves(listed, gpu.uuid)
        }
        return len({counted_in_all(policies, model) for model in models}) <= 1

    def _grant(self, gpus: Sequence[tuple[Listed, str]], cuts: tuple[Cut, ...]) -> LeaseGranted:
        shares = tuple(
            _share(listed, tuple(uuid for other, uuid in gpus if other is listed))
            for listed in dict.fromkeys(listed for listed, _ in gpus)
        )
        return replace(self.granted, shares=shares, cuts=cuts)

    def _is_sound(self, there: LeaseGranted) -> bool:
        """Tell if nothing is against it of what looks at all grants of the round."""
        round_ = [*self.grants, there]
        found = [*faults_of_cards(self.book, round_), *faults_of_cleaning(self.book, round_)]
        return not any(fault.lease_id == there.lease_id for fault in found)

    def _taken(self) -> dict[str, list[tuple[int, int]]]:
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for each in self.grants:
            window = from_below(each.window.starts_at), from_above(each.window.ends_at)
            for share in each.shares:
                for uuid in share.gpu_uuids:
                    spans[uuid].append(window)
        return spans

    def _is_free(
        self,
        uuid: str,
        stops: Mapping[LeaseId, datetime],
        taken: Mapping[str, list[tuple[int, int]]],
    ) -> bool:
        window = self.granted.window
        starts, ends = from_below(window.starts_at), from_above(window.ends_at)
        calendar = self.book.calendar
        spans: list[tuple[int, int]] = [
            (span.starts, _until(span, stops)) for span in calendar.of(uuid)
        ]
        for other in calendar.rivals(uuid):
            spans += [(span.starts, span.ends) for span in calendar.of(other)]
            spans += taken.get(other, ())
        spans += taken.get(uuid, ())
        return not any(since < ends and starts < until for since, until in spans)

    def _serves(self, listed: Listed, uuid: str) -> bool:
        """Tell if a GPU is what the bid asks for, on the terms of both, at the bid's limit."""
        key = (listed.offer_id, uuid)
        if key not in self._fits:
            share, limit = _share(listed, (uuid,)), self.bid.limit
            there = replace(
                self.granted,
                shares=(share,),
                price=Rate(limit, self.granted.price.currency),
            )
            own = listed.terms.tenant_id == self.bid.terms.tenant_id
            least = self.bid.terms.request.nvlink_min or 0
            joined = Counter(gpu.nvlink_group for gpu in listed.terms.gpus)
            group = next(gpu.nvlink_group for gpu in listed.terms.gpus if gpu.uuid == uuid)
            linked = not self.bid.terms.request.nvlink or (
                group is not None and joined[group] >= least
            )
            fits = not own and linked and not any(terms_of(listed, share, there, self.bid))
            self._fits[key] = fits
        return self._fits[key]


def _until(span: Taken, stops: Mapping[LeaseId, datetime]) -> int:
    """Return when a taken span ends, once what is cut has stopped."""
    if span.lease_id is None or span.lease_id not in stops:
        return span.ends
    return min(span.ends, from_above(stops[span.lease_id]))


def _share(listed: Listed, uuids: tuple[str, ...]) -> Share:
    terms = listed.terms
    return Share(
        offer_id=terms.offer_id,
        host_id=terms.host_id,
        owner_id=terms.tenant_id,
        gpu_uuids=uuids,
        notice_seconds=terms.notice_seconds,
        reclaim_fee_ppm=terms.reclaim_fee_ppm,
        source=terms.source,
        reclaim_steps=terms.reclaim_steps,
        grace_seconds=terms.grace_seconds,
    )


def in_order(
    leases: Iterator[MayGo], key: Callable[[MayGo], tuple[int | bool | str | UUID, ...]]
) -> list[MayGo]:
    """Return the leases that may go in the order of their keys, and then of their ids."""
    return sorted(leases, key=lambda each: (*key(each), str(each.lease_id)))[:LOOKED_AT]
