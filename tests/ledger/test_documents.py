"""Documents as PDF: the same bytes, text that can be read, and names in many letters."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from ledger.documents import Column, Document, Table, pdf_of
from tests.ledger.pdf_text import text_of

PAPER = Document(
    title="Invoice INV-2026-0001",
    issuer=("Offpeak GmbH", "Straße 1"),
    addressee=("Łódź & Ελλάδα <Россия>",),
    facts=(("Date", "2026-12-01"),),
    tables=(
        Table(
            columns=(Column("Item", 3), Column("Amount", 1, numeric=True)),
            rows=(("H100-80G, on-demand", "12.34"),),
            totals=(("Total in EUR", "12.34"),),
        ),
    ),
    notes=("Reverse charge.",),
)

ELSEWHERE = """
import hashlib
from tests.ledger.test_documents import PAPER
from ledger.documents import pdf_of
print(hashlib.sha256(pdf_of(PAPER)).hexdigest())
"""


def test_the_text_of_a_document_can_be_read_out() -> None:
    said = text_of(pdf_of(PAPER))

    for part in (
        "Invoice INV-2026-0001", "Offpeak GmbH", "Straße 1", "Łódź & Ελλάδα", "Россия",
        "H100-80G, on-demand", "12.34", "Total in EUR", "Reverse charge.", "Page 1",
    ):  # fmt: skip
        assert part in said, said


def test_a_file_says_its_title_and_language_and_embeds_its_letters() -> None:
    data = pdf_of(PAPER)

    assert b"/Lang (en)" in data and b"/DisplayDocTitle true" in data
    assert b"Invoice INV-2026-0001" in data
    assert b"DejaVuSans" in data and b"/FontFile2" in data


def test_the_same_document_is_the_same_file_in_every_process() -> None:
    outcomes = {
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".", "DJANGO_SETTINGS_MODULE": ""},
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outcomes) == 1


def test_another_document_before_it_changes_nothing() -> None:
    first = pdf_of(PAPER)
    pdf_of(replace(PAPER, title="Credit note CN-2026-0001", addressee=("東京ラボ", "서울")))

    assert pdf_of(PAPER) == first


def test_a_long_table_goes_on_over_pages_with_its_head() -> None:
    [table] = PAPER.tables
    long = replace(PAPER, tables=(replace(table, rows=table.rows * 120),))

    said = text_of(pdf_of(long))

    assert "Page 4" in said
    assert said.count("Item") == said.count("Page ")


def test_letters_that_no_font_has_are_empty_squares_and_others_stay() -> None:
    said = text_of(pdf_of(replace(PAPER, addressee=("ไทย Lab", "東京 Lab"))))

    assert "\N{WHITE SQUARE}" * 3 in said
    assert "Lab" in said
