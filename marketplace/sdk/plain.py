"""Text of others on the terminal: shown as text, whatever it holds, in columns that line up."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from rich.cells import cell_len

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder or hide what stands beside them."""


JOINERS = frozenset({"\u200c", "\u200d"})
"""Which letters of some scripts, and emoji, are written with; they move and hide nothing."""


def plain(text: str) -> str:
    """Return text with what a terminal would obey written out: ESC becomes `\\x1b`.

    Names and titles come from other people; none may move the cursor, colour what follows, turn
    its direction or end the line.
    """
    return "".join(map(_visible, text)) if not text.isascii() or not text.isprintable() else text


def _visible(sign: str) -> str:
    if unicodedata.category(sign) not in HIDDEN or sign in JOINERS:
        return sign
    return sign.encode("unicode_escape").decode("ascii")


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text filled up with blanks to a width."""
    blanks = " " * max(0, width - width_of(text))
    return blanks + text if right else text + blanks


def folded(text: str, width: int) -> Iterator[str]:
    """Yield a text in lines of at most `width`, broken at blanks.

    A word that is longer stays whole, so that an id can be copied off the screen.
    """
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and width_of(longer) > width:
            yield line
            longer = word
        line = longer
    yield line
