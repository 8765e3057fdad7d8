"""A refusal as a person reads it on a page.

For programs the text of a refusal points to its details by their names in backticks. On a page the
detail itself stands in that place: nobody there sees a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from config.site.parts.figures import duration_text, local
from ledger.domain.refusal import Refusal

POINTED = re.compile(r"`([^`]+)`")
PPM_PER_PERCENT = 10_000


def sentence(refusal: Refusal) -> str:
    """Return what is wrong."""
    return _filled_in(refusal.message(), refusal.details)


def advice(refusal: Refusal) -> str:
    """Return what to do about it, or an empty string."""
    return _filled_in(refusal.advice(), refusal.details)


def whole(refusal: Refusal) -> str:
    """Return both as one text."""
    return f"{sentence(refusal)} {advice(refusal)}".strip()


def unmentioned(refusal: Refusal) -> Mapping[str, object]:
    """Return the details that its text does not hold already."""
    mentioned = set(POINTED.findall(f"{refusal.message()} {refusal.advice()}"))
    return {name: value for name, value in refusal.details.items() if name not in mentioned}


def figure(value: Any, name: str = "") -> str:
    """Return a detail in words: instants in the reader's zone, lists with commas.

    name: of the detail; it tells the unit of a whole number.
    """
    if isinstance(value, datetime):
        return local(value) if value.tzinfo else value.isoformat()
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(figure(each, name) for each in value)
    parts = name.split("_")
    if isinstance(value, int) and not isinstance(value, bool):
        if "seconds" in parts:
            return duration_text(timedelta(seconds=value))
        if "ppm" in parts:
            return f"{value / PPM_PER_PERCENT:g} %"
    return str(value)


def _filled_in(text: str, details: Mapping[str, object]) -> str:
    def detail(match: re.Match[str]) -> str:
        name = match[1]
        return figure(details[name], name) if name in details else name.replace("_", " ")

    return POINTED.sub(detail, text)
