"""An oracle: no lease is cut where it need not be, and none before its turn.

The planners promise an order in which leases go, and the fewest of them. So of each lease that
goes it must hold: had it stayed, and gone in its place all those that come before it in the order,
beside those of the grant's that come after it, then the grant could not have begun when it does.
Here that is tried: with GPUs that are free then, put together as the bid asks for them, and held to
the same checks as the grant itself. A lease is at fault only where a place is found that is sound.

The server does not prove this of each round: what protects people is checked there, by
`marketplace.domain.verification`, and this is how well the planners plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.money import Rate
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.decisions import decide
from marketplace.domain.facts.events import Cut, LeaseGranted, RoundCleared, Share
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.leases.reclaim_schedule import compensation
from marketplace.domain.orderbook.calendar import Taken
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.verification.card_units import Size, counted, counted_in
from marketplace.domain.verification.cuts import faults_at_price
from marketplace.domain.verification.least_run import least_run
from marketplace.domain.verification.occupancy import faults_of_cards, faults_of_cleaning
from marketplace.domain.verification.quotas import faults_of_quotas, use_of
from marketplace.domain.verification.reclaimed_quota import InClass, faults_of_compensation
from marketplace.domain.verification.terms import terms_of
from marketplace.domain.verification.verify_round import faults

LOOKED_AT = 64
"""So many leases are looked at for one bid, those that go first: more need not be known."""
SECOND = timedelta(seconds=1)

Sound = Callable[[LeaseGranted], bool]
"""Tells if a grant, with what it cuts, keeps quotas and limits."""


@pytest.fixture(scope="module")
def in_turn() -> Iterator[None]:
    """Hold every round to the order of its cuts, beside the checks that the server makes."""

    def all_faults(
        book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]
    ) -> list[Fault]:
        return list(dict.fromkeys((*faults(book, cleared, grants), *faults_of_turn(book, grants))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "faults", all_faults)
        yield


def faults_of_turn(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find leases that are interrupted before their turn, or although they need not be."""
    for granted in grants:
        bid = book.bids[granted.bid_id]
        stopped = [
            (book.held[cut.lease_id], cut) for cut in granted.cuts if cut.because == "interrupted"
        ]
        if not stopped:
            continue
        wrong = list(faults_at_price(granted, bid, stopped))
        wrong = wrong or list(_by_loss(book, grants, granted, bid))
        if wrong and book.quotas is not None and book.quotas.policies is not None:
            borrowed = list(_as_borrowed(book, book.quotas.policies, grants, granted, bid, stopped))
            firm = any(not held.is_interruptible for held, _ in stopped)
            wrong = [*borrowed, *(wrong if borrowed and not firm else ())]
        yield from (Fault(text, granted.lease_id) for text in wrong)


# --- interrupted at a price: who has least to lose goes first ------------------------------------


def _by_loss(
    book: Book, grants: Sequence[LeaseGranted], granted: LeaseGranted, bid: OpenBid
) -> Iterator[str]:
    """Find interruptible leases that go although others with less to lose would do.

    Where a quota lets the bid start later only, it is not told from when on it sought its place,
    and what a lease loses depends on that: it is at fault if it is for the first and for the last.
    """
    before = list(grants[: grants.index(granted)])
    bound = book.quotas is not None and book.quotas.policies is not None
    first = bid.terms.earliest_start
    found: list[str] = []
    for since in (first, granted.window.starts_at) if bound else (first,):
        ranked = in_order(
            (
                each
                for each in candidates(book, before, granted, since)
                if each.held.is_interruptible
                and each.held.bid is not None
                and each.held.bid.tenant_id != bid.terms.tenant_id
            ),
            lambda each: (each.loss(granted.at),),
        )
        wrong = list(
            faults_of_order(book, before, granted, bid, ranked, _keeps_quotas(book, before))
        )
        if not wrong:
            return
        found = found or wrong
    yield from found


def _keeps_quotas(book: Book, before: Sequence[LeaseGranted], *, cut: bool = False) -> Sound:
    """Return what tells if a grant after some others keeps quotas and limits.

    cut: whether what the grant cuts no longer counts. What those before it cut counts on until
    they are taken up, since they may yet be refused.
    """

    def keeps(there: LeaseGranted) -> bool:
        last = there if cut else replace(there, cuts=())
        found = faults_of_quotas(book, [*(replace(each, cuts=()) for each in before), last])
        return not any(fault.lease_id == there.lease_id for fault in found)

    return keeps


# --- taken back: interruptible leases first, and then the newest ---------------------------------


def _as_borrowed(
    book: Book,
    policies: Policies,
    grants: Sequence[LeaseGranted],
    granted: LeaseGranted,
    bid: OpenBid,
    stopped: Sequence[tuple[Held, Cut]],
) -> Iterator[str]:
    """Find why leases may not be taken back, or others before them; nothing if a class lets it."""
    first: list[str] | None = None
    for gpu_class in policies.classes:
        it = _Borrowed(book, policies, gpu_class, grants, granted, bid)
        found = [*it.faults(stopped), *it.out_of_order()]
        if not found:
            first = []
            break
        first = first or found
    yield from first or ()
    yield from faults_of_compensation(book, granted, stopped)


class _Borrowed(InClass):
    """The same figures as the check has, asked in which order leases go."""

    def out_of_order(self) -> Iterator[str]:
        """Find leases that go before others: interruptible ones first, and then the newest.

        Where those cost more than the bid pays at most, the order may be by what they cost.
        """
        book, unit = self.book, str(self.bid.terms.subscriber_id)
        assert book.quotas is not None
        uses = book.quotas.uses
        if unit not in self.rules_at(self.granted.at).parents:
            return
        there = [
            each
            for each in candidates(book, self.before, self.granted, self.bid.terms.earliest_start)
            if each.lease_id in uses and self.size_of(each.lease_id) and each.unit != unit
        ]
        found: list[str] = []
        for by_cost in (False, True):
            # What a lease costs, in the second turn; and the newest of those that cost the same.
            ranked = in_order(
                there,
                lambda each, by_cost=by_cost: (  # type: ignore[misc]  # of this turn
                    not each.held.is_interruptible,
                    each.compensation(self.granted.at) if by_cost else 0,
                    -uses[each.lease_id].starts,
                ),
            )
            go = self._that_borrow(ranked)
            wrong = list(
                faults_of_order(
                    book,
                    self.before,
                    self.granted,
                    self.bid,
                    ranked,
                    self._keeps,
                    goes=lambda each, go=go: each.lease_id in go,  # type: ignore[misc]  # this turn's
                )
            )
            if not wrong:
                return
            found = found or wrong
        yield from found

    def _that_borrow(self, ranked: Sequence[Candidate]) -> set[LeaseId]:
        """Return those of units that still borrow once all before them have gone."""
        rules = self.rules_at(self.granted.at)
        root = rules.around(str(self.bid.terms.subscriber_id))[-1]
        used, found = self._used_now(), set[LeaseId]()
        for lease in ranked:
            if lease.unit not in rules.parents or rules.around(lease.unit)[-1] != root:
                continue
            if used[lease.unit] > rules.has(lease.unit):
                used[lease.unit] -= self.size_of(lease.lease_id)
                found.add(lease.lease_id)
        return found

    def _used_now(self) -> dict[str, Size]:
        """Return what each unit uses now, without what is cut already."""
        assert self.book.quotas is not None
        now = from_above(self.granted.at)
        used: dict[str, Size] = defaultdict(int)
        cut = {each.lease_id for granted in self.before for each in granted.cuts}
        for lease_id, use in self.book.quotas.uses.items():
            held = self.book.held.get(lease_id)
            is_cut = held is not None and held.ends < from_below(held.granted.window.ends_at)
            if use.starts <= now < use.ends and not is_cut and lease_id not in cut:
                used[str(use.terms.subscriber_id)] += self.size(use)
        for use in self.given_at(now):
            used[str(use.terms.subscriber_id)] += self.size(use)
        return used

    def _keeps(self, there: LeaseGranted) -> bool:
        """Tell if the grant, as it could have been, is within its own quota then, and fits now."""
        other = replace(self, grants=[*self.before, there], granted=there)
        unit, rules = str(self.bid.terms.subscriber_id), self.rules_at(self.granted.at)
        if list(other.beyond_own(unit)):
            return False
        direct = self._used_now()
        for cut in there.cuts:
            held = self.book.held[cut.lease_id]
            if held.bid is not None:
                direct[str(held.bid.subscriber_id)] -= self.size_of(cut.lease_id)
        direct[unit] += self._asked(there)
        used = rules.all_used(direct)
        nodes = [(node, rules.most(node)) for node in rules.around(unit)]
        if any(most is not None and used[node] > most for node, most in nodes):
            return False
        return _keeps_quotas(self.book, self.before, cut=True)(there)

    def _asked(self, there: LeaseGranted) -> Size:
        """Return what the bid counts as: its GPUs, or the parts that they are."""
        if self.policies.counts == "whole":
            return self.bid.gpus
        return sum(self.size(use) for use in use_of(self.book, there))


# --- leases that might have gone -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A lease that might have gone, and when it would have had to stop."""

    held: Held
    stop_at: datetime

    @property
    def lease_id(self) -> LeaseId:
        """Return its id."""
        return self.held.granted.lease_id

    @property
    def unit(self) -> str:
        """Return the business unit whose lease it is."""
        return "" if self.held.bid is None else str(self.held.bid.subscriber_id)

    def compensation(self, asked_at: datetime) -> int:
        """Return what its owners would owe for it, in nano-units."""
        return sum(self._owed([share], asked_at) for share in self.held.granted.shares)

    def loss(self, asked_at: datetime) -> int:
        """Return what is lost if it goes: the rest of it, and the compensation."""
        it = self.held.granted
        gpus = sum(len(share.gpu_uuids) for share in it.shares)
        rest = (self.held.ends - from_below(self.stop_at)) * gpus
        return it.price.charge(rest).nanos + self._owed(it.shares, asked_at)

    def _owed(self, shares: Sequence[Share], asked_at: datetime) -> int:
        it = self.held.granted
        return compensation(
            shares,
            it.price,
            starts_at=it.window.starts_at,
            ends_at=moment(self.held.ends),
            asked_at=asked_at,
            stop_at=self.stop_at,
        ).nanos


def candidates(
    book: Book, grants: Sequence[LeaseGranted], granted: LeaseGranted, since: datetime
) -> Iterator[Candidate]:
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
            yield Candidate(held, stop_at)


def in_order(
    leases: Iterable[Candidate], key: Callable[[Candidate], tuple[int | bool, ...]]
) -> list[Candidate]:
    """Return the leases that may go in the order of their keys, and then of their ids."""
    return sorted(leases, key=lambda each: (*key(each), str(each.lease_id)))[:LOOKED_AT]


# --- where else the grant could have been --------------------------------------------------------


def faults_of_order(
    book: Book,
    grants: Sequence[LeaseGranted],
    granted: LeaseGranted,
    bid: OpenBid,
    ranked: Sequence[Candidate],
    sound: Sound,
    *,
    goes: Callable[[Candidate], bool] = lambda lease: True,
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

    def without(self, gone: Sequence[Candidate]) -> LeaseGranted | None:
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
        return len({_counts_as(policies, model) for model in models}) <= 1

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
            says = self.book.agents.says(share.host_id)
            promised = self.book.promises.said.get(share.offer_id)
            against = terms_of(listed, says, promised, share, there, self.bid)
            fits = not own and linked and not any(against)
            self._fits[key] = fits
        return self._fits[key]


def _counts_as(policies: Policies, model: str) -> tuple[Size, ...]:
    """Return what a GPU of a model counts as in each class, and for limits."""
    in_classes = (counted_in(policies, each, model) for each in policies.classes)
    return (*in_classes, counted(policies, model))


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
