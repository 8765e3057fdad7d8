"""Documents as PDF, by reportlab: the same document gives the same bytes.

The file has a title and a language, and its text can be copied and searched. DejaVu Sans is
embedded (Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew and Arabic letters, the latter two
neither joined nor turned round). Chinese, Japanese and Korean are written with the fonts that PDF
readers bring for them. What no font has is shown as an empty square.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer
from reportlab.platypus import Table as Grid

from ledger.documents.document import Document, Table

FONTS = Path(__file__).parent / "fonts"
REGULAR, BOLD = "DejaVuSans", "DejaVuSans-Bold"
CHINESE, JAPANESE, KOREAN = "STSong-Light", "HeiseiMin-W3", "HYSMyeongJo-Medium"
MISSING = "\N{WHITE SQUARE}"
MARGIN = 18 * mm
PADDING = 6
"""What reportlab leaves free within a page's frame."""
WIDTH = A4[0] - 2 * MARGIN - 2 * PADDING
LINE_COLOUR, MUTED = colors.HexColor("#c8ccd2"), colors.HexColor("#5b6470")
_SCRIPTS = (
    (0x3040, 0x30FF, JAPANESE),
    (0xAC00, 0xD7AF, KOREAN),
    (0x1100, 0x11FF, KOREAN),
    (0x2E80, 0x9FFF, CHINESE),
    (0xF900, 0xFAFF, CHINESE),
    (0xFF00, 0xFFEF, CHINESE),
)


def pdf_of(document: Document) -> bytes:
    """Return a document as a PDF file."""
    _register()
    buffer = io.BytesIO()
    template = SimpleDocTemplate(
        buffer,
        pagesize=A4,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN + 6 * mm,
        title=document.title,
        author=document.issuer[0] if document.issuer else "",
        subject=document.title,
        creator="Offpeak",
        lang=document.language,
        displayDocTitle=True,
        invariant=1,  # neither the time nor anything random in the file
    )

    def foot(canvas: Any, _: object) -> None:
        canvas.saveState()
        canvas.setFillColor(MUTED)
        canvas.setFont(REGULAR, 7.5)
        canvas.drawString(MARGIN + PADDING, MARGIN, _shown(document.footer or document.title))
        canvas.drawRightString(A4[0] - MARGIN - PADDING, MARGIN, f"Page {canvas.getPageNumber()}")
        canvas.restoreState()

    template.build(list(_story(document)), onFirstPage=foot, onLaterPages=foot)
    return buffer.getvalue()


@cache
def _register() -> None:
    for name in (REGULAR, BOLD):
        pdfmetrics.registerFont(TTFont(name, FONTS / f"{name}.ttf"))
    pdfmetrics.registerFontFamily(REGULAR, normal=REGULAR, bold=BOLD, italic=REGULAR)
    for name in (CHINESE, JAPANESE, KOREAN):
        pdfmetrics.registerFont(UnicodeCIDFont(name))


def _style(*, size: float = 9, bold: bool = False, right: bool = False, muted: bool = False) -> Any:
    return ParagraphStyle(
        f"{size}{bold}{right}{muted}",
        fontName=BOLD if bold else REGULAR,
        fontSize=size,
        leading=size * 1.35,
        alignment=TA_RIGHT if right else 0,
        textColor=MUTED if muted else colors.black,
    )


def _story(document: Document) -> Iterator[Any]:
    yield Paragraph(_marked(document.title), _style(size=17, bold=True))
    yield Spacer(0, 7 * mm)
    width = WIDTH
    facts = [
        [Paragraph(_marked(name), _style(muted=True)), Paragraph(_marked(said), _style())]
        for name, said in document.facts
    ]
    parties = [
        _lines("To", document.addressee),
        _lines("From", document.issuer),
    ]
    sides = Grid([[parties[0], parties[1]]], colWidths=[width / 2, width / 2])
    sides.setStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), ("LEFTPADDING", (0, 0), (0, -1), 0)])
    yield sides
    yield Spacer(0, 5 * mm)
    if facts:
        grid = Grid(facts, colWidths=[width * 0.25, width * 0.75])
        grid.setStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (-1, -1), 0),
                ("TOPPADDING", (0, 0), (-1, -1), 1),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 1),
            ]
        )
        yield grid
    for table in document.tables:
        yield Spacer(0, 6 * mm)
        if table.title:
            yield Paragraph(_marked(table.title), _style(size=11, bold=True))
            yield Spacer(0, 2 * mm)
        yield _grid(table, width)
    for note in document.notes:
        yield Spacer(0, 3 * mm)
        yield Paragraph(_marked(note), _style(size=8.5))


def _lines(heading: str, lines: tuple[str, ...]) -> list[Any]:
    said = [Paragraph(heading, _style(size=8, muted=True))]
    for number, line in enumerate(lines):
        said.append(Paragraph(_marked(line), _style(bold=number == 0)))
    return said


def _grid(table: Table, width: float) -> Any:
    heads = [
        Paragraph(_marked(column.title), _style(size=8, right=column.numeric, muted=True))
        for column in table.columns
    ]
    rows = [heads]
    for row in table.rows:
        rows.append(_cells(table, row))
    for number, row in enumerate(table.totals, start=1):
        rows.append(_cells(table, row, bold=number == len(table.totals)))
    weights = sum(column.weight for column in table.columns)
    grid = Grid(
        rows,
        colWidths=[width * column.weight / weights for column in table.columns],
        repeatRows=1,
    )
    first_total = len(rows) - len(table.totals)
    style: list[Any] = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("LINEBELOW", (0, 0), (-1, 0), 0.8, colors.black),
        ("LINEBELOW", (0, 1), (-1, first_total - 1), 0.3, LINE_COLOUR),
        ("LEFTPADDING", (0, 0), (0, -1), 0),
        ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
    ]
    if table.totals:
        style.append(("LINEABOVE", (0, first_total), (-1, first_total), 0.8, colors.black))
    grid.setStyle(style)
    return grid


def _cells(table: Table, row: tuple[str, ...], *, bold: bool = False) -> list[Any]:
    return [
        Paragraph(_marked(text), _style(right=column.numeric, bold=bold))
        for column, text in zip(table.columns, row, strict=True)
    ]


@cache
def _covered() -> frozenset[int]:
    return frozenset(TTFont(REGULAR, FONTS / f"{REGULAR}.ttf").face.charToGlyph)


def _font_of(letter: str) -> str:
    code = ord(letter)
    if code in _covered():
        return ""
    return next((font for low, high, font in _SCRIPTS if low <= code <= high), MISSING)


def _shown(text: str) -> str:
    """Return text with what the embedded font lacks as empty squares."""
    return "".join(MISSING if _font_of(letter) else letter for letter in text)


def _marked(text: str) -> str:
    """Return text as reportlab's markup, each run of letters in a font that has them."""
    said = []
    for font, run in groupby(text, key=_font_of):
        letters = "".join(run)
        if font == MISSING:
            said.append(MISSING * len(letters))
        elif font:
            said.append(f'<font name="{font}">{escape(letters)}</font>')
        else:
            said.append(escape(letters))
    return "".join(said)
