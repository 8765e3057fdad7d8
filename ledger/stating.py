"""Issuing the statements of closed months, and putting papers' files away.

A statement has what counts in its month: opening, what each kind of entry did, closing. A closed
month takes no entries, so its figures stand; one that was opened again is stated anew where they
changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db.models import Exists, Max, OuterRef, Q, QuerySet, Subquery, Sum

from ledger.commands.papers import MonthNotClosed, issue_statement, note_paper_archived
from ledger.composing import payer_of, platform_named
from ledger.documents import RENDERER, pdf_of
from ledger.documents.self_billed import paper_of
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import AccountId, SubscriberId, TenantId, UserId
from ledger.domain.paper_events import PaperKind, StatementLine
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period, read_period
from ledger.domain.statements import (
    NothingToState,
    StatementDraft,
    StatementIssuedBefore,
    title_of,
)
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.following import read_up_to
from ledger.models import (
    AccountRow,
    BillingDetailsRow,
    DocumentFile,
    EarningRow,
    PaperRow,
    PeriodRow,
    PostingRow,
    PostingSumRow,
    UsageChargeRow,
)
from ledger.queries.closing import month

MONEY = "ledger.money"
STATED_KINDS = (*sorted(PAYING_KINDS), "earnings")
STATED_MAX = 200
"""Statements issued at once; what is left is told."""
ARCHIVED_MAX = 50
LOOP = Meta(actor="loop:papers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What came of stating a month. left: accounts that are still to be looked at."""

    issued: int
    left: int
    position: Position


def state_month(
    store: EventStore,
    period: Period,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
    most: int = STATED_MAX,
) -> Stated:
    """Issue the statements of a closed month for all accounts that have none, or an older one.

    Raises: MonthNotClosed.
    """
    seen = month(period)
    if seen.state != "closed":
        raise MonthNotClosed(period=str(period))
    issued, position = 0, read_up_to(MONEY)
    due = to_state(period)
    for account in list(due[:most]):
        draft = compose_statement(account, period, as_of=read_up_to(MONEY))
        try:
            position = issue_statement(
                store,
                draft,
                user_id=user_id,
                by=by.step(f"statement:{account.pk}"),
                now=now,
            )
        except (NothingToState, StatementIssuedBefore):
            continue
        issued += 1
    return Stated(issued=issued, left=max(0, due.count() - most), position=position)


def to_state(period: Period) -> QuerySet[AccountRow]:
    """Return the accounts whose statement of a closed month is to be issued, by title.

    Those with an entry in it or before, and no statement; and those that got an entry since, where
    a month was opened again and closed.
    """
    closed = PeriodRow.objects.filter(period__lte=str(period), state="closed")
    closed_at = closed.aggregate(last=Max("closed_position"))["last"] or 0
    moved = PostingSumRow.objects.filter(account_id=OuterRef("pk"), period__lte=str(period))
    stated = PaperRow.objects.filter(
        account_id=OuterRef("pk"), kind="statement", period=str(period)
    )
    since = PostingRow.objects.filter(
        account_id=OuterRef("pk"), period__lte=str(period), position__gt=OuterRef("stated_at")
    )
    return (
        AccountRow.objects.filter(kind__in=STATED_KINDS)
        .exclude(tenant_id=None)
        .exclude(kind="earnings", tenant_id=PLATFORM_ID)
        .alias(stated_at=Subquery(stated.order_by("-as_of").values("as_of")[:1]))
        .filter(Exists(moved))
        .filter(Q(stated_at=None) | Q(Q(stated_at__lt=closed_at), Exists(since)))
        .order_by("title", "account_id")
    )


def compose_statement(account: AccountRow, period: Period, *, as_of: Position) -> StatementDraft:
    """Return what the statement of a closed month of an account is to say.

    The rows of money must have been read up to `as_of`.
    """
    assert account.tenant_id is not None, "an account that is stated is open"
    mine = PostingSumRow.objects.filter(account_id=account.pk)
    opening = mine.filter(period__lt=str(period)).aggregate(sum=Sum("nanos"))["sum"]
    sums = mine.filter(period=str(period)).values("kind").annotate(sum=Sum("nanos"))
    by_kind = {each["kind"]: int(each["sum"]) for each in sums.order_by("kind")}
    owner = account.kind == "earnings"
    lines = _earned(account, period, by_kind) if owner else _spent(account, period, by_kind)
    return StatementDraft(
        account_id=AccountId(account.pk),
        account_kind=account.kind,
        account_title=account.title,
        tenant_id=TenantId(account.tenant_id),
        subscriber_id=SubscriberId(account.subscriber_id) if account.subscriber_id else None,
        issuer=platform_named(),
        party=payer_of(account),
        period=period,
        currency=account.currency,
        opening_nanos=int(opening or 0),
        lines=tuple(lines),
        held_nanos=account.held_nanos,
        as_of=as_of,
    )


def _spent(account: AccountRow, period: Period, by_kind: dict[str, int]) -> Iterator[StatementLine]:
    """Yield what an account that pays was charged and got; rented capacity as lines of its own."""
    rented = UsageChargeRow.objects.filter(account_id=account.pk, period=str(period))
    sums = rented.exclude(provider="").values("provider").annotate(sum=Sum("charged_nanos"))
    providers = {each["provider"]: -int(each["sum"]) for each in sums.order_by("provider")}
    for kind, nanos in by_kind.items():
        if kind != "usage":
            yield StatementLine(kind=kind, title=title_of(kind), nanos=nanos)
            continue
        own = nanos - sum(providers.values())
        if own or not providers:
            yield StatementLine(kind=kind, title=title_of(kind), nanos=own)
        for provider, part in providers.items():
            title = f"Use of GPUs rented from {provider}"
            yield StatementLine(kind=kind, title=title, nanos=part)


def _earned(
    account: AccountRow, period: Period, by_kind: dict[str, int]
) -> Iterator[StatementLine]:
    """Yield what came to an owner's earnings: what consumers paid and the fee beside it."""
    sums = (
        EarningRow.objects.filter(account_id=account.pk, period=str(period), kind="usage")
        .values("kind")
        .annotate(gross=Sum("gross_nanos"), fee=Sum("fee_nanos"))
    )
    shared = {each["kind"]: (int(each["gross"]), int(each["fee"])) for each in sums.order_by()}
    for kind, nanos in by_kind.items():
        gross, fee = shared.get(kind, (0, 0))
        yield StatementLine(
            kind=kind, title=title_of(kind), gross_nanos=gross, fee_nanos=fee, nanos=nanos
        )


def state_closed(store: EventStore, *, now: datetime) -> int:
    """Issue the statements of closed months where closed months are invoiced by themselves.

    Returns: how many.
    """
    if not BillingDetailsRow.objects.filter(pk=PLATFORM_ID, issues_by_itself=True).exists():
        return 0
    read, done = read_up_to(MONEY), 0
    for row in PeriodRow.objects.filter(state="closed").order_by("period"):
        if row.closed_position is None or read < row.closed_position:
            continue
        period = read_period(row.period)
        if to_state(period).exists():
            done += state_month(store, period, user_id=None, by=LOOP, now=now).issued
    return done


def archive_papers(store: EventStore, *, now: datetime) -> int:
    """Write the files of papers that have none yet, and put on record what they are.

    A file is put away before it is on record: killed in between, the same file is found again.
    Returns: how many.
    """
    rows = PaperRow.objects.filter(sha256="").order_by("position")[:ARCHIVED_MAX]
    for row in rows:
        data = pdf_of(paper_of(row))
        file, _ = DocumentFile.objects.get_or_create(
            document_id=row.pk,
            defaults={"sha256": hashlib.sha256(data).hexdigest(), "data": data},
        )
        note_paper_archived(
            store,
            cast("PaperKind", row.kind),
            row.issuer_id,
            row.pk,
            sha256=file.sha256,
            size=len(bytes(file.data)),
            renderer=RENDERER,
            by=LOOP,
            now=now,
        )
    return len(rows)


def see_to_papers(store: EventStore, *, now: datetime) -> int:
    """Issue what is due by itself, and put files away. Returns: how many papers that were."""
    return state_closed(store, now=now) + archive_papers(store, now=now)
