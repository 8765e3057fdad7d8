"""What a person reads on a page."""

from __future__ import annotations

import re

BLOCKS = "dd|details|div|dl|dt|form|h[1-3]|li|ol|p|section|summary|table|td|th|tr|ul"


def text(content: bytes) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", content.decode()).split())


def html(content: bytes) -> str:
    """Return the source of a page, however its lines are laid out."""
    source = re.sub(r"\s+", " ", content.decode()).replace("> <", "><")
    return re.sub(rf" ?(</?(?:{BLOCKS})\b[^>]*>) ?", r"\1", source)
