"""A refusal on a page names no field of the API: what it points to stands in the text."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from config.site.parts.refusals import advice, sentence, unmentioned, whole
from ledger.domain.money import Money
from ledger.domain.payments import PaymentRecorded
from ledger.domain.refusal import Refusal
from marketplace.domain.governance.authority import FigureOutOfRange, GrantExceeded
from marketplace.domain.leases.actions import ReclaimUnderWay
from marketplace.domain.leases.reclaim import NoticeTooShort

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def recorded() -> PaymentRecorded:
    return PaymentRecorded(
        entry_id=uuid4(), reference="4711", amount=Money(5_000_000_000, "USD"), recorded_at=NOON
    )


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (NoticeTooShort(notice_seconds_min=600), "the notice that was agreed: 10 min."),
        (ReclaimUnderWay(stop_at=NOON), "at least as soon: by Sun 29 Nov 12:00 UTC."),
        (recorded(), "credited to the account before, at Sun 29 Nov 12:00 UTC."),
        (FigureOutOfRange(given=9, least=0, most=7), "It lies between 0 and 7."),
        (GrantExceeded(granted=4, shared_out=6), "It was granted 4 and would share out 6;"),
    ],
)
def test_a_detail_stands_where_its_name_was(refusal: Refusal, told: str) -> None:
    assert told in whole(refusal)
    assert "`" not in whole(refusal)


def test_details_that_the_text_holds_are_not_listed_again() -> None:
    left = unmentioned(recorded())

    assert set(left) == {"entry_id", "reference"}


def test_a_name_without_its_detail_is_read_as_words() -> None:
    refusal = NoticeTooShort()

    assert sentence(refusal).endswith("agreed: notice seconds min.")
    assert advice(refusal) == ""
