"""`offpeak credit-notes`: lines and amounts as asked, and steps by another person."""

from __future__ import annotations

from pathlib import Path

from tests.marketplace.cli.pretending import BID, Market, offpeak

ASKED = "POST invoices/INV-2026-0001/credit-notes"


def test_lines_are_credited_as_they_are_named(market: Market) -> None:
    market.answers[ASKED] = 201, {"credit_id": BID, "position": 1}
    said = ("credit-notes", "ask", "INV-2026-0001", "--reason", "ours", "--yes")
    done = offpeak(market, *said, "--line", "001=0.73", "--line", "003=2")
    assert done.returncode == 0, done.stderr
    assert BID in done.stderr
    [body] = [body for _, _, body in market.heard if body]
    lines = [{"line_id": "001", "amount": "0.73"}, {"line_id": "003", "amount": "2"}]
    assert body == {"reason": "ours", "lines": lines}


def test_without_lines_all_that_is_left_is_credited(market: Market) -> None:
    market.answers[ASKED] = 201, {"credit_id": BID, "position": 1}
    done = offpeak(market, "credit-notes", "ask", "INV-2026-0001", "--reason", "ours", "--yes")
    assert done.returncode == 0, done.stderr
    assert [body for _, _, body in market.heard if body] == [{"reason": "ours"}]


def test_a_line_without_an_amount_is_refused_before_anything_is_asked(market: Market) -> None:
    said = ("credit-notes", "ask", "INV-2026-0001", "--reason", "ours", "--yes", "--line", "001")
    done = offpeak(market, *said)
    assert done.returncode == 2
    assert "such as 001=0.73" in done.stderr
    assert not [body for _, _, body in market.heard if body]


def test_another_person_approves_or_declines_and_reads_it(market: Market, tmp_path: Path) -> None:
    market.answers[f"POST credit-notes/{BID}/approve"] = 200, {"position": 2}
    market.answers[f"POST credit-notes/{BID}/decline"] = 200, {"position": 2}
    note = {
        "credit_id": BID, "number": "CN-2026-0001", "state": "issued", "currency": "EUR",
        "invoice_number": "INV-2026-0001", "reason": "ours", "asked_at": "2026-12-01T00:00:00Z",
        "lines": [{"line_id": "001", "amount": "0.73"}], "net": "0.73", "tax": "0.14",
        "total": "0.87",
    }  # fmt: skip
    market.answers["GET credit-notes"] = 200, {"data": [note], "next": None}
    market.answers[f"GET credit-notes/{BID}"] = 200, note

    assert "Issued." in offpeak(market, "credit-notes", "approve", BID).stderr
    assert "Not issued." in offpeak(market, "credit-notes", "decline", BID).stderr
    assert "CN-2026-0001" in offpeak(market, "credit-notes", "list").stdout
    shown = offpeak(market, "credit-notes", "show", BID).stdout
    assert "0.73" in shown and "0.14" in shown
