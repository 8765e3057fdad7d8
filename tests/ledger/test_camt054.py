"""What a bank tells in a file: read with care, and each line typed."""

from __future__ import annotations

from datetime import date

import pytest

from ledger.camt054 import LINES_MAX, BankNoticeTooLong, BankNoticeUnreadable, read
from ledger.domain.money import Money
from tests.ledger.camt054_files import entry, notice


@pytest.mark.parametrize("version", ["02", "04", "08", "13"])
@pytest.mark.parametrize("old", [True, False])
def test_entries_of_all_versions_are_read(version: str, *, old: bool) -> None:
    text = notice(
        entry("OP-1", "12.50", old=old),
        entry("OP-2", "3.00", came=True, code="AC04", more="Konto geschlossen", old=old),
        entry("OP-3", "1.00", status="PDNG", old=old),
        version=version,
    )
    out, back, waits = read(text.encode())
    assert (out.end_to_end_id, out.money, out.on) == (
        "OP-1",
        Money(12_500_000_000, "EUR"),
        date(2026, 2, 3),
    )
    assert (out.came, out.booked, back.came, waits.booked) == (False, True, True, False)
    assert back.words == "AC04: the account is closed: Konto geschlossen"
    assert read(text) == [out, back, waits]


def test_an_entry_of_several_payments_has_a_line_for_each() -> None:
    payments = "".join(
        f"<TxDtls><Refs><EndToEndId>OP-{n}</EndToEndId></Refs>"
        f'<AmtDtls><TxAmt><Amt Ccy="EUR">{n}.00</Amt></TxAmt></AmtDtls></TxDtls>'
        for n in (1, 2)
    )
    text = notice(
        '<Ntry><Amt Ccy="EUR">3.00</Amt><CdtDbtInd>DBIT</CdtDbtInd><Sts>BOOK</Sts><BookgDt>'
        "<DtTm>2026-02-03T08:00:00</DtTm></BookgDt><NtryRef>7</NtryRef>"
        f"<NtryDtls>{payments}</NtryDtls></Ntry>"
    )
    assert [(each.end_to_end_id, each.money.nanos, each.reference) for each in read(text)] == [
        ("OP-1", 1_000_000_000, "7"),
        ("OP-2", 2_000_000_000, "7"),
    ]
    unnamed = text.replace("<NtryDtls>", "<Left>").replace("</NtryDtls>", "</Left>")
    [one] = read(unnamed)
    assert (one.end_to_end_id, one.money.nanos) == ("", 3_000_000_000)


LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>'
)
OUTSIDE = '<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("before", [LAUGHS, OUTSIDE, "<!DOCTYPE d SYSTEM 'http://[::1]/x.dtd'>"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_that_declares_anything_is_refused_unread(before: str, encoding: str) -> None:
    text = notice(entry("&a;", "1.00"), before=before).replace("UTF-8", encoding)
    with pytest.raises(BankNoticeUnreadable) as refused:
        read(text.encode(encoding))
    assert "document type" in str(refused.value.details["because"])


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "not XML"),
        ("<a>", "not XML"),
        ("<Document/>", "another kind"),
        (notice(version="01"), "another kind"),
        (notice().replace("camt.054", "camt.053"), "another kind"),
        (notice(entry("OP-1", "ten")), "no number"),
        (notice(entry("OP-1", "NaN")), "currency"),
        (notice(entry("OP-1", "1.00", currency="")), "currency"),
        (notice(entry("OP-1", "0.0000000001")), "places"),
        (notice(entry("OP-1", "-1.00")), "bounds"),
        (notice(entry("OP-1", "1" * 30)), "bounds"),
        (notice(entry("OP-1", "1.00", day="soon")), "day"),
        (notice(entry("OP-1", "1.00").replace("DBIT", "BOTH")), "debit or credit"),
        (notice(entry("OP-1", "1.00").replace("BookgDt", "Other")), "when"),
    ],
)
def test_what_is_no_notice_is_refused_with_why(text: str, because: str) -> None:
    for data in (text, text.encode()):
        with pytest.raises(BankNoticeUnreadable) as refused:
            read(data)
        assert because in str(refused.value.details["because"])


def test_a_file_has_so_many_lines_and_no_more() -> None:
    one = entry("OP-1", "1.00")
    assert len(read(notice(*[one] * LINES_MAX))) == LINES_MAX
    with pytest.raises(BankNoticeTooLong):
        read(notice(*[one] * (LINES_MAX + 1)))
