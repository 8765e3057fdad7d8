"""How much was kept in a volume, for how long, at which price: exact, and of bounded size.

Versions come each minute while work runs, so what they had is summed up as it ends: by the hour
while a charge may still end in between, then by the day, and what is older than the newest
SPANS_MAX by the account that pays. Byte-seconds are whole numbers, and what different prices make
of them is kept before it is divided, so that no sum depends on when it was summed up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ledger.domain.ids import AccountId
from ledger.domain.span import Window

SPANS_MAX = 128
"""So many days, and hours of the last one, are kept apart: what is owed for more has waited for
longer than any volume is kept without being paid."""
HOURLY_FOR = timedelta(hours=2)
"""So long, and the hour that runs, no charge ends earlier: see `charging.charged_until`."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a GiB costs for a month, and who pays."""

    nanos_per_gib_month: int
    account_id: AccountId
    currency: str
    cost_centre: str


@dataclass(frozen=True, slots=True)
class Step:
    """From `at` on, `size_bytes` are kept on these terms. Whole seconds."""

    at: datetime
    size_bytes: int
    terms: Terms

    def spans(self, until: datetime, *, hourly_from: datetime) -> Iterator[Span]:
        """Give what this comes to until then, by the day, and from a moment on by the hour.

        What costs nothing comes to nothing.
        """
        begins = self.at if self.size_bytes and self.terms.nanos_per_gib_month else until
        while begins < until:
            if begins < hourly_from:
                ends = min(day_of(begins) + DAY, hourly_from, until)
            else:
                ends = min(hour_of(begins) + HOUR, until)
            seconds = (ends - begins) // timedelta(seconds=1)
            yield Span(Window(begins, ends), self.terms, self.size_bytes * seconds)
            begins = ends


@dataclass(frozen=True, slots=True)
class Span:
    """What was kept in a window of one day, on the same terms.

    beside: byte-seconds times price of what is in it beside `byte_seconds` at its own price.
    """

    window: Window
    terms: Terms
    byte_seconds: int
    beside: int = 0

    @property
    def nano_byte_seconds(self) -> int:
        """Return bytes × seconds × price of all of it."""
        return self.byte_seconds * self.terms.nanos_per_gib_month + self.beside

    def joined(self, after: Span) -> Span:
        """Return this and what comes after it, on the same terms, as one."""
        return replace(
            self,
            window=Window(self.window.starts_at, after.window.ends_at),
            byte_seconds=self.byte_seconds + after.byte_seconds,
            beside=self.beside + after.beside,
        )

    def is_of_day(self, after: Span) -> bool:
        """Tell if what comes after this is of the same day, on the same terms."""
        same_day = day_of(self.window.starts_at) == day_of(after.window.starts_at)
        return same_day and self.terms == after.terms

    def with_sum_of(self, before: Span) -> Span:
        """Return this with what an older one has beside it, at the higher price of the two."""
        dearer = max(self, before, key=lambda each: each.terms.nanos_per_gib_month)
        summed = replace(self, terms=dearer.terms)
        return summed.coming_to(self.nano_byte_seconds + before.nano_byte_seconds)

    def coming_to(self, nano_byte_seconds: int) -> Span:
        """Return this with another sum, as byte-seconds at its price and what is left of it."""
        whole, rest = divmod(nano_byte_seconds, self.terms.nanos_per_gib_month)
        return replace(self, byte_seconds=whole, beside=rest)


@dataclass(frozen=True, slots=True)
class KeptTime:
    """All that ever was kept in a volume.

    oldest: one for each account, with the sum of all before `spans`, in the window of the last of
    them. spans: what is over, in the order of time. step: what is kept now; None: nothing ever was.
    """

    oldest: tuple[Span, ...] = ()
    spans: tuple[Span, ...] = ()
    step: Step | None = None

    @property
    def accounts(self) -> list[AccountId]:
        """Return who pays, or paid."""
        terms = [each.terms for each in (*self.oldest, *self.spans)]
        now = () if self.step is None else (self.step.terms,)
        return list(dict.fromkeys(each.account_id for each in (*terms, *now)))

    def until(self, until: datetime) -> Iterator[Span]:
        """Give all that is over then, in the order of time for each account."""
        last = () if self.step is None else self.step.spans(until, hourly_from=until)
        for span in (*self.oldest, *self.spans, *last):
            if span.window.ends_at <= until:
                yield span

    def after(self, at: datetime, size_bytes: int, terms: Terms) -> KeptTime:
        """Return this with what is kept from `at` on, if that is new.

        Clocks of several machines may differ: nothing begins before what came before it.
        """
        begins, last = at.replace(microsecond=0), self.step
        if last is None:
            return replace(self, step=Step(begins, size_bytes, terms))
        if (last.size_bytes, last.terms) == (size_bytes, terms):
            return self
        step = Step(max(begins, last.at), size_bytes, terms)
        return replace(self._over(last, step.at), step=step)

    def _over(self, last: Step, ended_at: datetime) -> KeptTime:
        """Return this with a step that is over."""
        hourly_from = hour_of(ended_at) - HOURLY_FOR
        # What ended before the last step was by the hour has been joined to days already.
        joined, apart = hour_of(last.at) - HOURLY_FOR, len(self.spans)
        while apart and self.spans[apart - 1].window.ends_at > joined:
            apart -= 1
        spans = list(self.spans[:apart])
        for span in (*self.spans[apart:], *last.spans(ended_at, hourly_from=hourly_from)):
            if spans and _are_one(spans[-1], span, hourly_from):
                spans[-1] = spans[-1].joined(span)
            else:
                spans.append(span)
        oldest = {each.terms.account_id: each for each in self.oldest}
        for span in spans[:-SPANS_MAX]:
            before = oldest.get(span.terms.account_id)
            oldest[span.terms.account_id] = span if before is None else span.with_sum_of(before)
        return replace(self, oldest=tuple(oldest.values()), spans=tuple(spans[-SPANS_MAX:]))


NOTHING = KeptTime()
"""Of a volume to which nothing was written."""


def hour_of(moment: datetime) -> datetime:
    """Return when the hour of a moment began."""
    return moment.replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    """Return when the day of a moment began (UTC)."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _are_one(span: Span, after: Span, hourly_from: datetime) -> bool:
    """Tell if no charge ends between the two."""
    same_hour = hour_of(span.window.starts_at) == hour_of(after.window.starts_at)
    return span.is_of_day(after) and (same_hour or after.window.ends_at <= hourly_from)
