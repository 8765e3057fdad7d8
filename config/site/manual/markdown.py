"""Markdown of the manual as HTML: what can be linked has an id, and tables can be read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]*")
"""What a line of a reference is about and may be linked by: a refusal's code, a setting."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, for the search."""

    anchor: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as HTML, and its sections in order; the first has no heading."""

    html: str
    sections: tuple[Section, ...]


def render(text: str, *, drawings: Path) -> Rendered:
    """Return Markdown as HTML; raw HTML in it is text.

    drawings: the folder from which images are put into the page itself.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", _drawing_from(drawings))
    tokens = markdown.parse(text)
    anchors = _name_headings(tokens)
    _name_lines(tokens, anchors)
    _open_tables(tokens)
    html = markdown.renderer.render(tokens, markdown.options, {})
    # Whoever has no mouse scrolls a wide listing with the arrow keys.
    html = html.replace("<pre>", '<pre tabindex="0">')
    return Rendered(html, tuple(_sections(tokens)))


def anchor_of(title: str) -> str:
    """Return the id that a heading is linked by: its letters and digits with dashes between."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"


def _name_headings(tokens: Sequence[Token]) -> set[str]:
    anchors: set[str] = set()
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            wanted = anchor = anchor_of(_plain(inline))
            number = 1
            while anchor in anchors:
                number += 1
                anchor = f"{wanted}-{number}"
            anchors.add(anchor)
            token.attrSet("id", anchor)
    return anchors


def _name_lines(tokens: Sequence[Token], anchors: set[str]) -> None:
    """Give a table's line the id of what it is about, where its first cell is one word of code."""
    for line, cell, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inline.children or []
        if line.type != "tr_open" or cell.type != "td_open" or len(children) != 1:
            continue
        [word] = children
        if word.type == "code_inline" and CODE.fullmatch(word.content):
            if word.content not in anchors:
                line.attrSet("id", word.content)
            anchors.add(word.content)


def _open_tables(tokens: list[Token]) -> None:
    """Let wide tables scroll by keyboard too, and leave no head cell empty.

    A table whose whole head is empty is a list of pairs: its first cells are the heads of lines.
    """
    heading = ""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.type == "heading_open":
            heading = _plain(tokens[at + 1])
        elif token.type == "table_open":
            end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
            table = _with_heads(tokens[at : end + 1])
            label = escape(f"Table: {heading}" if heading else "Table")
            opened = f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">\n'
            table = [_html(opened), *table, _html("</div>\n")]
            tokens[at : end + 1] = table
            at += len(table) - 1
        at += 1


def _with_heads(table: list[Token]) -> list[Token]:
    end = next(i for i, token in enumerate(table) if token.type == "thead_close")
    names = [token.content for token in table[:end] if token.type == "inline"]
    if not any(names):
        table = [table[0], *table[end + 1 :]]
        for before, token in itertools.pairwise(table):
            if before.type == "tr_open":
                _turn(token, "th", scope="row")
        _close_alike(table)
        return table
    for token, inline in itertools.pairwise(table):
        if token.type == "th_open":
            if inline.content:
                token.attrSet("scope", "col")
            else:
                _turn(token, "td")
    if not names[0]:  # a table of two heads: above and at the left
        for before, token in zip(table[end:], table[end + 1 :], strict=False):
            if before.type == "tr_open":
                _turn(token, "th", scope="row")
    _close_alike(table)
    return table


def _turn(cell: Token, tag: str, **attributes: str) -> None:
    cell.tag = tag
    cell.attrs.update(attributes)


def _close_alike(table: Sequence[Token]) -> None:
    tag = ""
    for token in table:
        if token.type in ("th_open", "td_open"):
            tag = token.tag
        elif token.type in ("th_close", "td_close"):
            token.tag = tag


def _html(text: str) -> Token:
    return Token("html_block", "", 0, content=text)


def _plain(inline: Token) -> str:
    children = inline.children or []
    return "".join(" " if "break" in child.type else child.content for child in children)


def _sections(tokens: Sequence[Token]) -> list[Section]:
    found = [Section("", "", "")]
    for before, token in zip([tokens[0], *tokens] if tokens else [], tokens, strict=False):
        text = _plain(token) if token.type == "inline" else ""
        if token.type in ("fence", "code_block"):
            text = token.content
        if before.type == "heading_open" and token.type == "inline":
            found.append(Section(str(before.attrs["id"]), text, ""))
        elif text:
            last = found[-1]
            found[-1] = Section(last.anchor, last.title, f"{last.text} {text}".strip())
    return found


def _drawing_from(folder: Path) -> Callable[..., str]:
    def drawing(
        renderer: RendererHTML,
        tokens: Sequence[Token],
        at: int,
        options: OptionsDict,
        env: EnvType,
    ) -> str:
        """Put a drawing into the page itself, so that it needs no address of its own.

        What it shows is told by its own title and description.
        """
        path = (folder / str(tokens[at].attrs["src"])).resolve()
        if path.suffix != ".svg" or not path.is_relative_to(folder):
            return renderer.image(tokens, at, options, env)
        return path.read_text()

    return drawing
