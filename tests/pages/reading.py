"""What a person reads on a page."""

from __future__ import annotations

import re


def text(content: bytes) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", content.decode()).split())
