"""Statements: what happened to one account in a month, newest first, with the total after each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from django.db.models import Q, QuerySet, Sum

from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import AccountId
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.models import AccountRow, PostingRow, PostingSumRow
from ledger.queries.money import account

NEWEST_FIRST = ("-period", "-position", "-line_id")
"""The order of lines; backwards they add up. One entry may post to an account more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What happened to an account in a period: it opened with one amount, closed with another.

    by_kind: what each kind of entry added, in nano-units; opening and these make the closing.
    """

    account: AccountRow
    period: Period
    opening_nanos: int
    closing_nanos: int
    by_kind: dict[str, int]
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """One line of a statement and the account's total after it."""

    posting: PostingRow
    balance_nanos: int


def statement(actor: Actor, account_id: AccountId, period: Period) -> Statement:
    """Return an account's statement of a period.

    Raises: AccountUnknown.
    """
    row = account(actor, account_id)
    mine = PostingSumRow.objects.filter(account_id=account_id)
    within = mine.filter(period=str(period))
    by_kind, lines = {}, 0
    for each in within.values("kind").annotate(sum=Sum("nanos"), of=Sum("lines")).order_by("kind"):
        by_kind[each["kind"]] = int(each["sum"])
        lines += each["of"]
    opening = _sum(mine.filter(period__lt=str(period)))
    return Statement(
        account=row,
        period=period,
        opening_nanos=opening,
        closing_nanos=opening + sum(by_kind.values()),
        by_kind=by_kind,
        lines=lines,
    )


def statement_lines(
    actor: Actor,
    account_id: AccountId,
    period: Period,
    *,
    kind: str = "",
    within: Window | None = None,
) -> QuerySet[PostingRow]:
    """Return the postings of an account in a period, newest first.

    kind: only entries of that kind. within: only what was posted in that span.
    """
    rows = visible(actor, PostingRow).filter(account_id=account_id, period=str(period))
    if kind:
        rows = rows.filter(kind=kind)
    if within is not None:
        rows = rows.filter(at__gte=within.starts_at, at__lt=within.ends_at)
    return rows.order_by(*NEWEST_FIRST)


def newest_lines(actor: Actor, account_id: AccountId) -> QuerySet[PostingRow]:
    """Return the postings of an account in all its months, newest first."""
    return visible(actor, PostingRow).filter(account_id=account_id).order_by(*NEWEST_FIRST)


@dataclass(frozen=True, slots=True)
class Lines:
    """One page of a statement's lines. newer, older: what names the page before and after it."""

    rows: list[PostingRow]
    newer: str | None
    older: str | None


def page_of_lines(
    rows: QuerySet[PostingRow], *, size: int, before: str = "", after: str = ""
) -> Lines:
    """Return a page of `statement_lines`: the newest, or those next to a line of another page.

    before: the lines that come after that one, which are older; after: those that are newer. One
    that is none of the account's names the newest page.
    """
    edge = PostingRow.objects.filter(line_id=before or after).first() if before or after else None
    backwards = edge is not None and not before
    if edge is not None:
        # Both say the same of the position; the first is what the index is asked.
        rows = (
            rows.filter(_newer_than(edge), position__gte=edge.position)
            if backwards
            else rows.filter(_older_than(edge), position__lte=edge.position)
        )
    order = [name.removeprefix("-") for name in NEWEST_FIRST] if backwards else NEWEST_FIRST
    found = list(rows.order_by(*order)[: size + 1])
    there_are_more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    has_newer = there_are_more if backwards else edge is not None
    has_older = True if backwards else there_are_more
    return Lines(
        rows=found,
        newer=found[0].line_id if found and has_newer else None,
        older=found[-1].line_id if found and has_older else None,
    )


def with_balances(
    actor: Actor, account_id: AccountId, lines: Iterable[PostingRow]
) -> Iterator[StatementLine]:
    """Yield lines of `statement_lines` as they come, each with the account's total after it.

    The total counts every posting up to the line, also those that a filter leaves out.
    """
    lines = list(lines)
    if not lines:
        return
    # A cost centre on a line is that of a unit whose account pays for its use.
    hides = not (actor.sees_all or account(actor, account_id).kind in PAYING_KINDS)
    mine = visible(actor, PostingRow).filter(account_id=account_id)
    after: dict[str, int] = {}
    for _, of_block in groupby(sorted(lines, key=_place), key=_block):
        after |= _balances(mine, account_id, list(of_block))
    for line in lines:
        if hides:
            line.cost_centre = ""  # of who paid: not for who was paid
        yield StatementLine(posting=line, balance_nanos=after[line.line_id])


def _balances(
    mine: QuerySet[PostingRow], account_id: AccountId, lines: list[PostingRow]
) -> dict[str, int]:
    """Return the account's total after each of these lines of one block, the oldest first."""
    oldest, newest = lines[0], lines[-1]
    period, block = _block(oldest)
    summed = PostingSumRow.objects.filter(
        Q(period__lt=period) | Q(period=period, block__lt=block), account_id=account_id
    )
    within = mine.filter(
        period=period,
        position__gte=block * PostingSumRow.POSITIONS_SUMMED,
        position__lte=newest.position,
    )
    balance = _sum(summed) + _sum(within.filter(_older_than(oldest)))
    between = within.filter(position__gte=oldest.position).exclude(_older_than(oldest))
    ordered = between.order_by("position", "line_id").values_list("line_id", "nanos")
    after: dict[str, int] = {}
    for line_id, nanos in ordered.iterator():
        balance += nanos
        after[line_id] = balance
    return after


def _block(line: PostingRow) -> tuple[str, int]:
    return line.period, line.position // PostingSumRow.POSITIONS_SUMMED


def _place(line: PostingRow) -> tuple[str, int, str]:
    return line.period, line.position, line.line_id


def _older_than(line: PostingRow) -> Q:
    same = Q(period=line.period)
    return (
        Q(period__lt=line.period)
        | (same & Q(position__lt=line.position))
        | (same & Q(position=line.position, line_id__lt=line.line_id))
    )


def _newer_than(line: PostingRow) -> Q:
    same = Q(period=line.period)
    return (
        Q(period__gt=line.period)
        | (same & Q(position__gt=line.position))
        | (same & Q(position=line.position, line_id__gt=line.line_id))
    )


def _sum(rows: QuerySet[PostingRow] | QuerySet[PostingSumRow]) -> int:
    return int(rows.aggregate(sum=Sum("nanos"))["sum"] or 0)
