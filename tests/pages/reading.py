"""What a person reads on a page."""

from __future__ import annotations

import re


def text(content: bytes) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", content.decode()).split())


def html(content: bytes) -> str:
    """Return the source of a page, however its lines are laid out."""
    return re.sub(r"\s+", " ", content.decode()).replace("> <", "><")
