"""What can be asked of a bid. The money it may cost is set aside before it is placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from ledger.commands.money import placing_hold, release_hold, resizing_hold
from ledger.domain.accounts import Account
from ledger.domain.ids import AccountId, BidId, HoldId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.folds import Fold
from ledger.eventstore.port import (
    DECIDE_ATTEMPTS_MAX,
    START,
    Aggregate,
    EventStore,
    Meta,
    Position,
    StreamMoved,
    load,
    record,
)
from ledger.eventstore.together import Part, look, look_at_all, record_each, record_together
from marketplace.commands.spending import drawing
from marketplace.commands.volumes import claiming
from marketplace.domain.bids.bid import (
    Bid,
    BidTerms,
    BidTermsDiffer,
    BidUnknown,
    hold_of,
    place,
    same_terms,
)
from marketplace.domain.bids.routing import Route
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.domain.facts.events import BidEvent, BidPlaced
from marketplace.domain.files.events import FolderEvent
from marketplace.domain.files.folder import Folder, need_inputs
from marketplace.domain.secrets.events import SecretEvent
from marketplace.domain.secrets.secret import Secret, need_kept, secret_id_of
from marketplace.domain.spending.budgets import Budgets


def place_bid(
    store: EventStore,
    *,
    terms: BidTerms,
    by: Meta,
    now: datetime,
    route: BidRouted | None = None,
) -> Position:
    """Put a bid on the market, once, with the most it can cost set aside for it.

    route: how its market was chosen, recorded with it.

    Returns: the store position at which it is placed.
    Raises: every refusal of `bid.place` and of `place_hold`; BidTermsDiffer; BudgetUsedUp.
    """
    seen = look_at_all(store, [(Bid, terms.bid_id), (Budgets, terms.tenant_id)])
    # Whole: of two who place a bid of one id on two accounts at once, one leaves no hold behind.
    return record_together(store, _placing(store, terms, by, now, seen, route), whole=True)[-1]


def place_bids(
    store: EventStore, asked: Sequence[tuple[BidTerms, Meta]], *, now: datetime
) -> list[Position | Exception]:
    """Put several bids on the market, one after the other as `place_bid` would, in one append.

    Returns: for each bid its position, or why it is not placed. Where all of them together
        fail, each is tried alone, so that none fails for another's sake.
    """
    bids = [(Bid, terms.bid_id) for terms, _ in asked]
    accounts = [(Account, terms.account_id) for terms, _ in asked]
    budgets = [(Budgets, terms.tenant_id) for terms, _ in asked]
    seen = look_at_all(store, [*bids, *accounts, *budgets])
    outcomes: list[Position | Exception] = []
    requests: dict[int, list[Part]] = {}
    for number, (terms, by) in enumerate(asked):
        outcomes.append(START)
        try:
            requests[number] = _placing(store, terms, by, now, seen, None)
        except Exception as failure:
            # Also where it is our own fault: the others must not be turned away with it.
            outcomes[number] = failure
    settled = _each_settled(store, list(requests.values()))
    for number, outcome in zip(requests, settled, strict=True):
        outcomes[number] = outcome
    return outcomes


def _each_settled(
    store: EventStore, requests: Sequence[Sequence[Part]]
) -> list[Position | Exception]:
    try:
        together = record_each(store, requests)
    except Exception as failure:
        if len(requests) == 1:
            return [failure]
        # The store's fault or that of one of them. Known by its command, none is written twice.
        return [_each_settled(store, [parts])[0] for parts in requests]
    return [each if isinstance(each, Refusal) else each[-1] for each in together]


def _placing(
    store: EventStore,
    terms: BidTerms,
    by: Meta,
    now: datetime,
    seen: Mapping[tuple[type[Aggregate], object], Fold],
    route: BidRouted | None,
) -> list[Part]:
    """Return what places a bid; the last part is the bid's own stream.

    seen: that stream, the organisation's budgets and, if it was read, the account's.
    """
    placed = place(terms, now=now)
    found = claiming(store, placed, by=by, now=now) if placed.workload.volumes else []

    def decide(bid: Bid | None) -> Sequence[BidEvent]:
        if bid is None:
            return [placed]
        if not same_terms(bid.terms, terms):
            raise BidTermsDiffer(bid_id=terms.bid_id)
        return []

    known = seen[Bid, terms.bid_id]
    own = Part(Bid, terms.bid_id, decide, by, seen=known)
    if known.state is not None:
        return [own]  # it has had its hold; by now that may be released or a lease's
    most = hold_of(placed, placed.limit)
    hold = placing_hold(
        account_id=terms.account_id,
        hold_id=placed.hold_id,
        money=most,
        purpose=f"bid:{terms.bid_id}",
        by=by,
        now=now,
    )
    hold = replace(hold, seen=seen.get((Account, terms.account_id)))
    drawn = drawing(placed, most, seen=seen[Budgets, terms.tenant_id], by=by, now=now)
    parts = [*_inputs(placed, by), *_secrets(placed, by), *found, hold, *drawn]
    if route is not None:
        parts.append(Part(Route, terms.bid_id, lambda known: [] if known else [route], by))
    return [*parts, own]


def _inputs(placed: BidPlaced, by: Meta) -> list[Part]:
    """Return what sees that the folder which a bid brings is kept; nothing is written to it.

    It is held: a folder that is removed meanwhile refuses the bid, so that each bid which is
    accepted came before the removal.
    """
    folder_id, tenant_id = placed.workload.inputs, placed.tenant_id
    if folder_id is None:
        return []

    def decide(folder: Folder | None) -> Sequence[FolderEvent]:
        need_inputs(folder, folder_id=folder_id, tenant_id=tenant_id)
        return []

    return [Part(Folder, folder_id, decide, by, holds=True)]


def _secrets(placed: BidPlaced, by: Meta) -> list[Part]:
    """Return what sees that the secrets which a bid names are kept; nothing is written to them."""

    def seeing(name: str) -> Part:
        def decide(secret: Secret | None) -> Sequence[SecretEvent]:
            need_kept(secret, name=name)
            return []

        return Part(Secret, secret_id_of(placed.tenant_id, name), decide, by, holds=True)

    work = placed.workload
    names = dict.fromkeys([*work.secrets, *([work.fetch_secret] if work.fetch_secret else ())])
    return [seeing(name) for name in names]


def release_stray_hold(
    store: EventStore, *, account_id: AccountId, bid_id: BidId, by: Meta, now: datetime
) -> bool:
    """Give a hold back whose bid never came; tell if that was so.

    Where hold and bid do not commit together, a process that dies between the two leaves one.
    """
    if load(store, Bid, bid_id) is not None:
        return False
    release_hold(store, account_id=account_id, hold_id=HoldId(bid_id), by=by, now=now)
    return True


def amend_bid(
    store: EventStore,
    *,
    bid_id: BidId,
    limit: Rate | None,
    deadline: datetime | None,
    gpus: int | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Change a bid's limit, deadline or number of GPUs (None: keep it); it queues anew.

    The change and the money that is set aside for it are one step. Where the store cannot do that,
    more money is set aside before the change, what is no longer needed given back after it.

    Raises: BidUnknown, BidNotOpen, BudgetUsedUp, the refusals of `Bid.amend` and of `resize_hold`.
    """

    for _attempt in range(DECIDE_ATTEMPTS_MAX):
        seen = look(store, Bid, bid_id)
        before: Bid | None = seen.state
        if before is None:
            raise BidUnknown(bid_id=bid_id)
        events = before.amend(
            limit=limit or before.limit, deadline=deadline or before.deadline, gpus=gpus, now=now
        )
        amended = before
        for event in events:
            amended = Bid.evolve(amended, event)
        own = Part(Bid, bid_id, _as_seen(before, events), by, seen=seen)
        hold = resizing_hold(
            account_id=amended.terms.account_id,
            hold_id=amended.terms.hold_id,
            money=amended.hold,
            by=by,
            now=now,
        )
        parts = [own, hold]
        if amended.hold > before.hold:
            grown = amended.hold - before.hold
            budgets = look(store, Budgets, before.terms.tenant_id)
            step = f"amended:{amended.version}"
            drawn = drawing(before.terms, grown, step=step, seen=budgets, by=by, now=now)
            parts = [hold, own, *drawn]
        with suppress(_Overtaken):
            return record_together(store, parts, whole=True)[parts.index(own)]
    raise StreamMoved(f"bid-{bid_id}")


class _Overtaken(Refusal):
    """Somebody changed the bid meanwhile: what it costs is to be worked out again."""


def _as_seen(before: Bid, events: Sequence[BidEvent]) -> Callable[[Bid], Sequence[BidEvent]]:
    def decide(bid: Bid) -> Sequence[BidEvent]:
        if bid.version != before.version:
            raise _Overtaken
        return events

    return decide


def cancel_bid(store: EventStore, *, bid_id: BidId, by: Meta, now: datetime) -> Position:
    """Withdraw a bid and give its money back.

    Raises: BidUnknown, BidNotOpen.
    """
    position = _decide(store, bid_id, lambda bid: bid.cancel(now=now), by)
    release_bid(store, bid_id=bid_id, by=by.step("release"), now=now)
    return position


def expire_bid(store: EventStore, *, bid_id: BidId, by: Meta, now: datetime) -> Position:
    """End a bid that can no longer be met by its deadline, and give its money back.

    Raises: BidUnknown, BidStillPossible.
    """
    position = _decide(store, bid_id, lambda bid: bid.expire(now=now), by)
    release_bid(store, bid_id=bid_id, by=by.step("release"), now=now)
    return position


def press_bid(
    store: EventStore, *, bid_id: BidId, market: str, by: Meta, now: datetime
) -> Position:
    """Say that the rest of paused work cannot wait longer in a market; once.

    Raises: BidUnknown.
    """
    return _decide(store, bid_id, lambda bid: bid.press(market=market, now=now), by.step("press"))


def release_bid(store: EventStore, *, bid_id: BidId, by: Meta, now: datetime) -> None:
    """Give the money of a bid that is over back, unless a lease has it; again changes nothing.

    Raises: BidUnknown, HoldUnknown.
    """
    bid = _known(store, bid_id)
    if bid.state in ("cancelled", "expired"):
        release_hold(
            store,
            account_id=bid.terms.account_id,
            hold_id=bid.terms.hold_id,
            by=by,
            now=now,
        )


def _known(store: EventStore, bid_id: BidId) -> Bid:
    bid = load(store, Bid, bid_id)
    if bid is None:
        raise BidUnknown(bid_id=bid_id)
    return bid


def _decide(
    store: EventStore, bid_id: BidId, rule: Callable[[Bid], Sequence[BidEvent]], by: Meta
) -> Position:
    return record(store, Bid, bid_id, _if_known(bid_id, rule), by=by)


def _if_known(
    bid_id: BidId, rule: Callable[[Bid], Sequence[BidEvent]]
) -> Callable[[Bid | None], Sequence[BidEvent]]:
    def decide(bid: Bid | None) -> Sequence[BidEvent]:
        if bid is None:
            raise BidUnknown(bid_id=bid_id)
        return rule(bid)

    return decide
